"""The explanation of a model's cost as text."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opcost.costs.caveats import caveats
from opcost.costs.explanation import Explanation
from opcost.costs.model_argument import study_lines
from opcost.costs.waiting import WAITING, waiting
from opcost.models.definition import ModelDefinition
from opcost.rows.quantities import ENERGY, TIME
from opcost.text import counted, joules, percent, scaled, seconds, some, table
from opcost.tuples.model_tuples import ModelTuples, total_flops
from opcost.tuples.operator_tuple import short_name

_MISSING = 10
_RECORDED = 5
_UNVERIFIED = (
    "The calls are those on a processor. On this GPU some may differ, as those after attention do; "
    "a study of the model there records them."
)
_WIDTH = 100


def as_text(
    model: ModelTuples,
    explanations: Sequence[Explanation],
    top: int,
    depth: int | None,
    config: Path | None = None,
) -> str:
    """The model, a table of targets, and for each target the cost by operator and module.

    Lists the `top` operators and modules; module paths are cut after `depth` names. `config` is the
    model config that the model was read from, if any.
    """
    parts = [_model_line(model)]
    if explanations:
        parts.append(_targets(explanations))
    parts += [_target(model, explanation, top, depth) for explanation in explanations]
    incomplete = [explanation for explanation in explanations if explanation.missing]
    if incomplete and model.definition is not None:
        parts.append(_remedy(model.definition, config))
    return "\n\n".join(parts)


def _model_line(model: ModelTuples) -> str:
    kernels = model.kernels()
    calls, flops = sum(count for _, count in kernels), total_flops(kernels)
    work = "unknown FLOPs" if flops is None else scaled(flops, "FLOPs", 4)
    inputs = ", ".join(map(str, model.definition.inputs)) if model.definition else ""
    return (
        f"{model.model}{f' on {inputs}' if inputs else ''}: {counted(calls, 'call')} of "
        f"{counted(len(kernels), 'operator tuple')}, "
        f"{counted(len(model.calls) - calls, 'call')} of views; {work}, "
        f"{scaled(model.parameters or 0, '', 4).strip()} parameters"
    )


def _targets(explanations: Sequence[Explanation]) -> str:
    header = ["target", "device", "time", "energy", "calls", "FLOPs", "tuples"]
    rows = []
    for explanation in explanations:
        row = explanation.compared
        rows.append(
            [
                explanation.target,
                explanation.device_name or "-",
                TIME.of("estimate").shown(row),
                ENERGY.of("estimate").shown(row),
                percent(row["coverage_calls"]),
                percent(row["coverage_flops"]),
                f"{row['measured_tuples']}/{row['tuples']}",
            ]
        )
    return "\n".join(table(header, rows, left=2))


def _target(model: ModelTuples, explanation: Explanation, top: int, depth: int | None) -> str:
    estimate = explanation.estimate
    name = f"{explanation.target} ({explanation.conditions_id})"
    lines = [f"Target {name if explanation.conditions_id else explanation.target}, "]
    lines[0] += f"of {explanation.database}"
    if not estimate.terms:
        return "\n".join([*lines, f"  No time: {estimate.time_reason}."])
    if not estimate.rows:
        return "\n".join([*lines, *_missing(explanation)])
    unverified = [_UNVERIFIED] if explanation.calls_unverified else []
    for note in [*caveats([explanation.compared]), *unverified, *_recorded(model, explanation)]:
        lines += textwrap.wrap(note, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    text = waiting(explanation.compared, explanation.modules())
    if text is not None:
        lines += textwrap.wrap(f"{text}.", _WIDTH, initial_indent="  ", subsequent_indent="    ")
    partial_s = explanation.compared["partial_time_s"] or 0.0
    total_s = estimate.time.value if estimate.time else partial_s
    known = "of the sum" if estimate.time else "of what is measured"
    operators = [row for row in explanation.operators() if row["launches_kernel"]]
    lines += ["", *_costs(f"operator ({known})", operators, _operator, total_s, top)]
    modules = explanation.modules(depth)
    lines += ["", *_costs(f"module ({known})", modules, _module, total_s, top)]
    lines += _missing(explanation)
    return "\n".join(lines)


def _recorded(model: ModelTuples, explanation: Explanation) -> list[str]:
    """By which calls the device differs from those extracted, of the first line."""
    found = model.differing_calls(explanation.estimate.model.launched())
    text = "Calls recorded on this device, compared with those above"
    return [f"{text}: {some(found, _RECORDED)}."] if found else []


def _operator(row: Mapping[str, Any]) -> str:
    return short_name(row["operator"])


def _module(row: Mapping[str, Any]) -> str:
    kind = f" ({row['module_class']})" if row["module_class"] else ""
    return f"{row['module_path'] or 'the model itself'}{kind}"


def _costs(
    title: str, rows: Sequence[Mapping[str, Any]], name: Any, total_s: float, top: int
) -> list[str]:
    """A table of the `top` rows; those not fully measured come last and have no time."""
    cells = [
        [
            name(row),
            str(row["calls"]),
            "-" if row["time_s"] is None else seconds(row["time_s"]),
            "-" if row["time_s"] is None or not total_s else f"{row['time_s'] / total_s:.1%}",
            "-" if row["energy_j"] is None else joules(row["energy_j"]),
            *([seconds(row["idle_time_s"])] if row.get("idle_time_s") is not None else []),
        ]
        for row in rows[:top]
    ]
    waits = [WAITING] if any(row.get("idle_time_s") is not None for row in rows) else []
    lines = table([title, "calls", "time", "share", "energy", *waits], cells)
    more = len(rows) - top
    return [f"  {line}" for line in lines] + ([f"  ... and {more} more"] if more > 0 else [])


def _missing(explanation: Explanation) -> list[str]:
    missing = explanation.missing
    if not missing:
        return []
    lines = ["", f"  Missing: {len(missing)} of {len(explanation.estimate.terms)} tuples"]
    for term in missing[:_MISSING]:
        why = "" if term.row is None else f": {term.row['status']}: {term.row['error']}"
        lines.append(f"    {term.calls} x {term.record.operator_tuple}{why}")
    more = len(missing) - _MISSING
    return [*lines, *([f"    ... and {more} more (--json lists all)"] if more > 0 else [])]


def _remedy(definition: ModelDefinition, config: Path | None) -> str:
    task, text = study_lines(definition, config)
    indented = "\n".join(f"    {line}" for line in text.splitlines())
    return (
        f"To measure what is missing, and only that, {task}:\n\n{indented}\n\n"
        "and run: snakemake --cores 1"
    )
