"""The comparison as text: what models cost, where it goes, and how far that can be trusted."""

from collections.abc import Iterable, Mapping, Sequence

from opcost.costs.breakdown import breakdown, shares_text
from opcost.costs.caveats import caveats
from opcost.costs.headline import cost_cells
from opcost.costs.phase_table import phase_lines, phase_notes
from opcost.costs.terms import Row
from opcost.costs.verdict import meanings, trust_cells
from opcost.costs.waiting import WAITING_TITLE, waits_of
from opcost.rows.quantities import COMPARED, TIME, Quantity
from opcost.text import table, with_meaning_of_noise, wrapped
from opcost.tuples.model_table import not_extracted

_COSTLIEST = 5


def summarise(
    comparison: Sequence[Row],
    shares: Sequence[Row],
    refused: Mapping[str, str] | None = None,
    in_context: Sequence[Row] = (),
    further: Iterable[Sequence[str]] = (),
) -> str:
    """The cost of all models on all targets; then, for each target, where it goes and how far that
    can be trusted; then the refused models and the reasons.
    """
    targets = list(dict.fromkeys(row["target"] for row in comparison))
    parts = ["\n".join(_costs(comparison, targets))] if len(targets) > 1 else []
    for target in targets:
        here, shared, timed = (
            [row for row in rows if row["target"] == target]
            for rows in (comparison, shares, in_context)
        )
        lines = [f"Target {target}: {_conditions(here)}"]
        if len(targets) == 1:
            lines += ["", *_costs(here, targets)]
        parts.append("\n".join([*lines, *_details(here, shared, timed)]))
    parts += ["\n".join(not_extracted(refused))] if refused else []
    parts += ["\n".join(lines) for lines in further if lines]
    return with_meaning_of_noise("\n\n".join(parts))


def _conditions(rows: Sequence[Row]) -> str:
    first, dtypes = rows[0], {row["dtype"] for row in rows}
    shared = [str(dtype) for dtype in dtypes if dtype and len(dtypes) == 1]
    about = [first["device_name"], f"torch {first['torch_version']}"]
    return ", ".join([*about, f"cache state {first['cache_state']}", *shared])


def _costs(rows: Sequence[Row], targets: Sequence[str]) -> list[str]:
    """A table of models; those of several targets side by side."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    ordered = sorted(rows, key=lambda row: models.index(row["model"]))
    several = {
        "target": len(targets) > 1,
        "inputs": True,
        "dtype": len({row["dtype"] for row in rows}) > 1,
    }
    titles = ["model", *(title for title, shown in several.items() if shown)]
    named = [{title: row[title] or "-" for title in titles} for row in ordered]
    return _side_by_side(named, cost_cells(ordered))


def _details(
    comparison: Sequence[Row], shares: Sequence[Row], in_context: Sequence[Row]
) -> list[str]:
    """Where the cost of a target's models goes, how far that can be trusted, and the caveats."""
    lines = []
    for quantity in COMPARED:
        parts = [(row["model"], _parts(row, shares, quantity)) for row in comparison]
        if any(text for _, text in parts):
            lines += ["", f"Where the {quantity} goes:"]
            lines += wrapped((f"{model}: {text}" for model, text in parts if text), "  ")
    if phases := phase_lines(comparison):
        lines += ["", *phases]
    for quantity in COMPARED:
        if quantity == TIME or any(row[quantity.of("end_to_end").value] for row in comparison):
            lines += [
                "",
                f"Can the breakdown of {quantity} be trusted? Its sum and the whole model:",
            ]
            named = [{"model": row["model"]} for row in comparison]
            lines += _side_by_side(named, [trust_cells(row, quantity) for row in comparison])
    found = caveats(comparison, in_context=in_context)
    notes = [*phase_notes(comparison), *meanings(comparison), *found]
    lines += ["", *wrapped([_of_what(comparison), *notes])]
    if waits := waits_of(comparison):
        lines += ["", f"{WAITING_TITLE} (share of the estimate):"]
        lines += wrapped((f"{text}." for text in waits), "  ")
    return lines


def _side_by_side(
    names: Sequence[Mapping[str, str]], cells: Sequence[Mapping[str, str]]
) -> list[str]:
    joined = [{**first, **second} for first, second in zip(names, cells, strict=True)]
    return table(list(joined[0]), [list(row.values()) for row in joined], left=len(names[0]))


def _of_what(comparison: Sequence[Row]) -> str:
    text = "Shares are of the sum from operators"
    if any(row[TIME.of("estimate").value] is None for row in comparison):
        return (
            f"{text}; where it is missing, of the whole model, or else of what is known. What is "
            "not measured is then the rest of the whole, with the model error."
        )
    return f"{text}."


def _parts(row: Row, shares: Sequence[Row], quantity: Quantity) -> str:
    """The parts of a model's cost with their shares, or nothing if none was measured."""
    operators = [share for share in shares if share["model"] == row["model"]]
    return shares_text(breakdown(row, operators, quantity), _COSTLIEST)
