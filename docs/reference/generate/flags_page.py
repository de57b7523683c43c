"""The page of flags, from opcost's registry of them."""

from opcost.rows.flags import FLAGS

from docs.reference.generate.layout import page, table

INTRODUCTION = """\
`flags` of a row name what a reader should know before using it. A row without flags has an empty
list; a row that failed has null.

- *repeated*: the cause is passing, so the trial is repeated, up to `max_repeats` times; the row has
  the flag if the last trial still had it. So is a trial with too few undisturbed batches.
- *doubtful*: the row may reproduce worse than others, and `opcost diff` allows for that
  ([query](../how_to/query.md)). So is every row that has not converged.

How it is measured: [time](../explanation/time.md), [energy](../explanation/energy.md)."""


def flags_page() -> str:
    """Every flag, its meaning, what to do about it, and what follows from it."""
    rows = [
        (f"`{name}`", flag.meaning, flag.remedy, _yes(flag.spoils), _yes(not flag.reproduces))
        for name, flag in FLAGS.items()
    ]
    header = ("flag", "means", "what to do", "repeated", "doubtful")
    return page("Flags", INTRODUCTION, table(header, rows))


def _yes(holds: bool) -> str:
    return "yes" if holds else ""
