"""The comparison as a page of text."""

from collections.abc import Mapping, Sequence

from opcost.costs.caveats import caveats
from opcost.costs.terms import Row
from opcost.costs.waiting import WAITING_TITLE, waits_of
from opcost.rows.quantities import ENERGY, TIME
from opcost.text import counted, difference, percent, table
from opcost.tuples.model_table import not_extracted
from opcost.tuples.operator_tuple import short_name

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
    first = comparison[0]
    lines = [
        f"Target {first['target']}: {first['device_name']}, torch {first['torch_version']}, "
        f"cache state {first['cache_state']}",
        "",
        *table(
            ["model", "sum of operators", "whole model", "difference", "calls", "FLOPs", "tuples"],
            [_comparison_cells(row) for row in comparison],
        ),
    ]
    if any(row["reference_energy_j"] is not None for row in comparison):
        header = ["model", "energy of operators", "whole model", "difference"]
        lines += ["", *table(header, [_energy_cells(row) for row in comparison])]
    lines += ["", *caveats(comparison)]
    lines += ["", "Where the time goes (share of the whole model's time):"]
    for row in comparison:
        lines.append(f"  {row['model']}: {_costliest(row['model'], shares)}")
    if waits := waits_of(comparison, modules):
        lines += ["", f"{WAITING_TITLE} (share of the estimate):"]
        lines += [f"  {text}." for text in waits]
    return "\n".join(lines)


def _comparison_cells(row: Row) -> list[str]:
    return [
        row["model"],
        TIME.of("estimate").shown(row),
        TIME.of("reference").shown(row),
        difference(TIME.error.read(row)),
        percent(row["coverage_calls"]),
        percent(row["coverage_flops"]),
        f"{row['measured_tuples']}/{row['tuples']}",
    ]


def _energy_cells(row: Row) -> list[str]:
    return [
        row["model"],
        ENERGY.of("estimate").shown(row),
        ENERGY.of("reference").shown(row),
        difference(ENERGY.error.read(row)),
    ]


def _costliest(model: str, shares: Sequence[Row]) -> str:
    rows = [row for row in shares if row["model"] == model and row["launches_kernel"]]
    known = [row for row in rows if row["share_of_reference_time"] is not None]
    parts = [
        f"{short_name(row['operator'])} {row['share_of_reference_time']:.0%} "
        f"({counted(row['calls'], 'call')})"
        for row in known[:_COSTLIEST]
    ]
    return ", ".join(parts) or ("not measured" if rows else "no kernels")
