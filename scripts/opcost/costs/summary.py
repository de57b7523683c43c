"""The comparison as text: what models cost, where it goes, and how far that can be trusted."""

from collections.abc import Mapping, Sequence

from opcost.costs.breakdown import breakdown, costliest, percents
from opcost.costs.caveats import caveats
from opcost.costs.headline import cost_cells
from opcost.costs.terms import Row
from opcost.costs.verdict import meanings, trust_cells
from opcost.costs.waiting import WAITING_TITLE, waits_of
from opcost.rows.quantities import COMPARED, TIME, Quantity
from opcost.text import table, wrapped
from opcost.tuples.model_table import not_extracted

_COSTLIEST = 5


def summarise(
    comparison: Sequence[Row],
    shares: Sequence[Row],
    refused: Mapping[str, str] | None = None,
    modules: Sequence[Row] = (),
) -> str:
    """The comparison of every target as text, followed by the refused models and the reasons."""
    targets = dict.fromkeys(row["target"] for row in comparison)
    parts = [
        _target_summary(
            [row for row in comparison if row["target"] == target],
            [row for row in shares if row["target"] == target],
            [row for row in modules if row["target"] == target],
        )
        for target in targets
    ]
    return "\n\n".join([*parts, *(["\n".join(not_extracted(refused))] if refused else [])])


def _target_summary(
    comparison: Sequence[Row], shares: Sequence[Row], modules: Sequence[Row]
) -> str:
    first, dtypes = comparison[0], {row["dtype"] for row in comparison}
    dtype = next(iter(dtypes)) if len(dtypes) == 1 else None
    lines = [
        f"Target {first['target']}: {first['device_name']}, torch {first['torch_version']}, "
        f"cache state {first['cache_state']}{f', {dtype}' if dtype else ''}",
        "",
        *_table_of(
            comparison, [_model_cells(row, not dtype) for row in comparison], cost_cells(comparison)
        ),
    ]
    for quantity in COMPARED:
        parts = [(row["model"], _parts(row, shares, quantity)) for row in comparison]
        if any(text for _, text in parts):
            lines += ["", f"Where the {quantity} goes (shares of the sum from operators):"]
            lines += wrapped((f"{model}: {text}" for model, text in parts if text), "  ")
    for quantity in COMPARED:
        if quantity == TIME or any(row[quantity.of("reference").value] for row in comparison):
            lines += [
                "",
                f"Can the breakdown of {quantity} be trusted? Its sum and the whole model:",
            ]
            trust = [trust_cells(row, quantity) for row in comparison]
            lines += _table_of(comparison, [{"model": row["model"]} for row in comparison], trust)
    lines += ["", *wrapped([*meanings(comparison), *caveats(comparison)])]
    if waits := waits_of(comparison, modules):
        lines += ["", f"{WAITING_TITLE} (share of the estimate):"]
        lines += wrapped((f"{text}." for text in waits), "  ")
    return "\n".join(lines)


def _table_of(rows: Sequence[Row], *cells: Sequence[Mapping[str, str]]) -> list[str]:
    """Tables of one row for each of `rows`, side by side."""
    joined = [{**first, **second} for first, second in zip(*cells, strict=True)]
    return table(list(joined[0]), [list(row.values()) for row in joined], left=len(cells[0][0]))


def _model_cells(row: Row, with_dtype: bool) -> dict[str, str]:
    cells = {"model": row["model"], "inputs": row["inputs"] or "-"}
    return cells | ({"dtype": row["dtype"] or "-"} if with_dtype else {})


def _parts(row: Row, shares: Sequence[Row], quantity: Quantity) -> str:
    """The parts of a model's cost with their shares, or nothing if none was measured."""
    operators = [share for share in shares if share["model"] == row["model"]]
    parts = costliest(breakdown(row, operators, quantity), _COSTLIEST)
    return ", ".join(
        f"{part.name} {percent}" for part, percent in zip(parts, percents(parts), strict=True)
    )
