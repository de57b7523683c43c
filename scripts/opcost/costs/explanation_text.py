"""The explanation of a model's cost as text: what it costs, where it goes, and the caveats."""

from collections.abc import Sequence

from opcost.costs.breakdown import Part, costliest, percents
from opcost.costs.caveats import caveats
from opcost.costs.explanation import Explanation
from opcost.costs.headline import cost_cells
from opcost.costs.model_argument import run_command
from opcost.costs.module_tree import Branch, module_tree
from opcost.costs.phase_table import phase_lines
from opcost.costs.terms import Row
from opcost.costs.verdict import meanings, trust_cells
from opcost.costs.waiting import waiting
from opcost.databases.database import REFERENCE
from opcost.models.definition import ModelDefinition
from opcost.rows.quantities import COMPARED, ENERGY, TIME
from opcost.text import counted, joules, margin, scaled, seconds, shortened, some, table, wrapped
from opcost.tuples.model_tuples import ModelTuples, total_flops

_MISSING = 10
_RECORDED = 5
_DIGITS = 3
_LINE = 90
_NOT_COMPARED = "The whole model was not measured there"
_UNVERIFIED = (
    "The calls are those on a processor. On this GPU some may differ, as those after attention do; "
    "a study of the model there records them."
)


def as_text(
    model: ModelTuples,
    explanations: Sequence[Explanation],
    top: int,
    depth: int | None,
    name: str | None = None,
) -> str:
    """The model, a table of targets, and for each target the cost by operator and module.

    Lists the `top` operators and a tree of about as many modules, or, with `depth`, the `top` paths
    cut after so many names. `name` is what the model was found by (model_argument.py); None for a
    module in use.
    """
    parts = [_model_lines(model)]
    if explanations:
        parts.append("\n".join(_targets(explanations)))
    parts += [_target(model, explanation, top, depth) for explanation in explanations]
    incomplete = [explanation for explanation in explanations if explanation.missing]
    if incomplete:
        parts.append(_remedy(model.definition, name))
    return "\n\n".join(parts)


def _model_lines(model: ModelTuples) -> str:
    kernels = model.kernels()
    calls, flops = sum(count for _, count in kernels), total_flops(kernels)
    work = "unknown FLOPs" if flops is None else scaled(flops, "FLOPs", 4)
    inputs = ""
    if model.definition is not None:
        inputs = f" on {', '.join(map(str, model.definition.inputs))}, {model.definition.precision}"
        inputs += ", a training step" if model.trains else ""
    text = (
        f"{model.model}{inputs}: {counted(calls, 'call')} of "
        f"{counted(len(kernels), 'operator tuple')}, "
        f"{counted(len(model.calls) - calls, 'call')} of views; {work}, "
        f"{scaled(model.parameters or 0, '', 4).strip()} parameters{_memory(model)}"
    )
    return "\n".join(wrapped([text]))


def _memory(model: ModelTuples) -> str:
    peak = model.activation_peak_bytes
    return "" if peak is None else f", {scaled(peak, 'B')} of activations at their peak"


def _targets(explanations: Sequence[Explanation]) -> list[str]:
    rows = [explanation.compared for explanation in explanations]
    cells = [
        {
            "target": explanation.target,
            "device": explanation.device_name or "-",
            **costs,
            "tuples": f"{row['measured_tuples']}/{row['tuples']}",
            "database": _source(explanation),
        }
        for explanation, row, costs in zip(explanations, rows, cost_cells(rows), strict=True)
    ]
    return table(list(cells[0]), [list(row.values()) for row in cells], left=2)


def _source(explanation: Explanation) -> str:
    day, database = explanation.measured_on, explanation.database
    name = "reference data" if database.parent == REFERENCE else database.name
    return f"{name}{f' of {day}' if day else ''}"


def _target(model: ModelTuples, explanation: Explanation, top: int, depth: int | None) -> str:
    estimate = explanation.estimate
    name, database = explanation.target, explanation.database
    if explanation.conditions_id:
        name += f" ({explanation.conditions_id})"
    is_reference = database.parent == REFERENCE
    where = f"the reference data ({database.name})" if is_reference else database
    lines = [f"Target {name}, of {where}"]
    if not estimate.terms:
        return "\n".join([*lines, f"  No time: {estimate.time_reason}."])
    if all(term.row is None for term in estimate.terms):
        tuples = counted(len(estimate.terms), "operator tuple")
        text = f"{lines[0]}: none of the model's {tuples} is measured there."
        return "\n".join(wrapped([text]))
    if not estimate.rows:
        return "\n".join([*lines, *_missing(explanation)])
    lines += ["", *_indented(_operators(explanation, top))]
    lines += ["", *_indented(_modules(explanation, top, depth))]
    if phases := phase_lines([explanation.compared], named=False):
        lines += ["", *_indented(phases)]
    if explanation.compared.get(TIME.of("reference").value):
        lines += ["", *_indented(_trust(explanation))]
    lines += ["", *wrapped(_notes(model, explanation), "  "), *_missing(explanation)]
    return "\n".join(lines)


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _operators(explanation: Explanation, top: int) -> list[str]:
    """Where the time goes, with the energy of each part."""
    every = explanation.parts()
    parts = costliest(every, top)
    energies_j = {part.name: part.amount for part in explanation.parts(ENERGY)}
    named = {part.name for part in parts}
    others_j = sum(amount or 0.0 for name, amount in energies_j.items() if name not in named)
    rows = [
        [
            part.name,
            "" if part.calls is None else str(part.calls),
            "-" if part.amount is None else _at_least(part, seconds(part.amount, _DIGITS)),
            _at_least(part, percent),
            _energy(energies_j.get(part.name, others_j)),
        ]
        for part, percent in zip(parts, percents(every, parts, 1), strict=True)
    ]
    known = all(part.share is not None for part in parts)
    title = "where the time goes" if known else "where the measured time goes"
    return _with_energy([title, "calls", "time", "share", "energy"], rows, bool(energies_j))


def _at_least(part: Part, amount: str) -> str:
    """A lower limit if some of the part is not measured."""
    return amount if part.complete or amount.startswith("<") else f">{amount}"


def _modules(explanation: Explanation, top: int, depth: int | None) -> list[str]:
    modules = explanation.modules(depth)
    branches = module_tree(explanation.compared, modules, None if depth else top)
    rows = [
        [
            _name(branch, explanation.estimate.model.model),
            str(branch.calls),
            "-" if branch.flops is None else scaled(branch.flops, "").strip(),
            *_measured_part(branch, seconds(branch.time_s, _DIGITS), f"{branch.share:.1%}"),
            _energy(branch.energy_j),
        ]
        for branch in branches
    ]
    header = ["modules", "calls", "FLOPs", "time", "share", "energy"]
    return _with_energy(header, rows, any(branch.energy_j for branch in branches))


def _measured_part(branch: Branch, *amounts: str) -> list[str]:
    """The amounts; lower limits if an operator is not measured, and dashes if none is."""
    if branch.tuples == branch.measured_tuples:
        return [*amounts]
    return [f">{amount}" if branch.measured_tuples else "-" for amount in amounts]


def _name(branch: Branch, model: str) -> str:
    indent = "  " * branch.depth
    if branch.is_rest:
        others = [counted(branch.others, "other")] if branch.others else []
        itself = ["itself"] if branch.calls_operators or not others else []
        return f"{indent}{' and '.join([*itself, *others])}"
    kind = f" ({branch.module_class})" if branch.is_leaf and branch.module_class else ""
    return f"{indent}{'.'.join(branch.path) or model}{kind}"


def _energy(value: float | None) -> str:
    return joules(value, _DIGITS) if value else "-"


def _with_energy(header: list[str], rows: list[list[str]], energy: bool) -> list[str]:
    return table(header, rows) if energy else table(header[:-1], [row[:-1] for row in rows])


def _trust(explanation: Explanation) -> list[str]:
    """The estimate beside the measured whole model."""
    compared = explanation.compared
    rows = [
        {"breakdown of": str(quantity), **trust_cells(compared, quantity)}
        for quantity in COMPARED
        if compared[quantity.of("reference").value] is not None
    ]
    return table(list(rows[0]), [list(row.values()) for row in rows])


def _notes(model: ModelTuples, explanation: Explanation) -> list[str]:
    compared = explanation.compared
    waits = waiting(compared, explanation.modules())
    notes = [
        *(meanings([compared]) if TIME.of("reference").value in compared else []),
        *caveats([compared]),
        *([_UNVERIFIED] if explanation.calls_unverified else []),
        *_recorded(model, explanation),
        *([f"{waits}."] if waits else []),
    ]
    if explanation.whole_conflict and not explanation.estimate.conflict:
        notes.append(f"The whole model is left out: {explanation.whole_conflict}.")
    elif explanation.estimate.time and TIME.of("reference").value not in compared:
        notes.insert(0, _never_measured(compared))
    return notes


def _never_measured(compared: Row) -> str:
    """What the interval of a sum consists of that no measurement of the whole confirms."""
    measurement, method = compared[TIME.measurement_half], compared[TIME.method_half]
    if method is None or measurement is None:
        return f"{_NOT_COMPARED}: opcost run measures it."
    return (
        f"{_NOT_COMPARED}. The interval of its time holds the uncertainty of the measurements "
        f"(±{margin(measurement)}) and the method's own error (±{margin(method)}), as "
        f"{counted(compared['method_models'], 'model')} tell it that were measured as a whole."
    )


def _recorded(model: ModelTuples, explanation: Explanation) -> list[str]:
    """By which calls the device differs from those extracted, of the first line."""
    found = model.differing_calls(explanation.estimate.model.launched())
    text = "Calls recorded on this device, compared with those above"
    return [f"{text}: {some(found, _RECORDED)}."] if found else []


def _missing(explanation: Explanation) -> list[str]:
    missing = explanation.missing
    if not missing:
        return []
    lines = ["", f"  Missing: {len(missing)} of {len(explanation.estimate.terms)} tuples"]
    for term in missing[:_MISSING]:
        why = "" if term.row is None else f": {term.row['status']}: {term.row['error']}"
        lines.append(f"    {term.calls} x {shortened(str(term.record.operator_tuple), _LINE)}{why}")
    more = len(missing) - _MISSING
    return [*lines, *([f"    ... and {more} more (--json lists all)"] if more > 0 else [])]


def _remedy(definition: ModelDefinition | None, name: str | None) -> str:
    how = "opcost.run(module, inputs)"
    if definition is not None and name is not None:
        how = run_command(definition, name)
    return f"To measure what is missing, and only that:\n\n    {how}"
