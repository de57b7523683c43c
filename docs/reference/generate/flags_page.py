"""The page of flags, from opcost's registry of them."""

from opcost.rows.flags import FLAGS

from docs.reference.generate.layout import page, table

INTRODUCTION = """\
The column `flags` lists the caveats of a row. It is an empty list for a row without caveats and
null for a failed measurement.

- *retried*: the cause is temporary, so the trial is retried, up to `max_repeats` times; the row has
  the flag if the last trial still had it. A trial with too few undisturbed batches is also retried.

[Time](../explanation/time.md) and [energy](../explanation/energy.md) describe the measurement."""


def flags_page() -> str:
    """Every flag with its meaning, remedy and consequences."""
    rows = [
        (f"`{name}`", flag.meaning, flag.remedy, "yes" if flag.spoils else "")
        for name, flag in FLAGS.items()
    ]
    header = ("flag", "meaning", "remedy", "retried")
    return page("Flags", INTRODUCTION, table(header, rows))
