"""The explanation of a model's cost as text: what it costs, where it goes, and the caveats."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opcost.costs import in_context_text
from opcost.costs.caveats import caveats
from opcost.costs.cost_tables import indented, missing_lines, module_lines, operator_lines
from opcost.costs.estimate import ModelEstimate
from opcost.costs.explanation import Explanation
from opcost.costs.headline import cost_cells
from opcost.costs.model_argument import run_command
from opcost.costs.module_tree import NOTABLE, module_tree
from opcost.costs.phase_table import phase_lines, phase_notes
from opcost.costs.terms import Row, terms_of
from opcost.costs.verdict import meanings, trust_cells
from opcost.costs.waiting import waiting
from opcost.databases.database import REFERENCE
from opcost.models.definition import ModelDefinition
from opcost.results_folder import DATABASE
from opcost.rows.comparability import COLUMNS, disagreements
from opcost.rows.quantities import COMPARED, ENERGY, TIME
from opcost.text import counted, plus_minus, scaled, some, table, with_meaning_of_noise, wrapped
from opcost.tuples.model_tuples import ModelTuples
from opcost.tuples.tuple_record import TupleRecord

_RECORDED = 5
_FLOPS = "1 multiply-add = 2 FLOPs."
_COMPLEX_FLOPS = "1 multiply-add = 2 FLOPs, of complex numbers 8."
_DIFFERENCES = 2
_NOT_COMPARED = "This database has no measurement of the whole model"
_SHARES = "Where the time goes, and modules: of the sum over operators, not of the whole model."
_SUM_ALONE = "sum*"
_MEASUREMENT_ALONE = f"{_SUM_ALONE}: ± of its measurements alone; the model error is unknown there."
_SEVERAL_PROTOCOLS = (
    "protocol: the version of the measurement protocol. Costs of different versions may differ on "
    "one device, too: CHANGELOG.md says by what."
)
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
    known = [each for each in explanations if each.has_data]
    if not any(each.estimate.rows for each in known):
        unmeasured = ModelEstimate(model, terms_of(model, {}, set()))
        parts += _modules(Explanation(Path(), "", None, unmeasured), top, depth)
    if known:
        parts.append("\n".join(_targets(known)))
    parts += [_target(model, explanation, top, depth) for explanation in known]
    parts += no_data(explanations)
    here = [each for each in explanations if each.database.resolve() == DATABASE.resolve()]
    if any(each.missing for each in here or explanations) or not explanations:
        parts.append(_remedy(model.definition, name))
    return with_meaning_of_noise("\n\n".join(parts))


def no_data(found: Sequence[Any]) -> list[str]:
    """The targets whose databases have none of the operators, in a line, and under which other
    conditions they have some; nothing without any.
    """
    without = [each for each in found if not each.has_data]
    lines = [f"No data: {', '.join(dict.fromkeys(each.target for each in without))}"]
    if elsewhere := dict.fromkeys(name for each in without for name in each.elsewhere):
        options = " ".join(f"--target {name}" for name in elsewhere)
        lines.append(f"Measured under other conditions, which this shows: {options}")
    return ["\n".join(lines)] if without else []


def _model_lines(model: ModelTuples) -> str:
    kernels = model.kernels()
    calls = sum(count for _, count in kernels)
    inputs = ""
    if model.definition is not None:
        inputs = f" on {', '.join(map(str, model.inputs))}, {model.precision}"
        inputs += ", a training step" if model.trains else ""
    text = (
        f"{model.model}{inputs}: {counted(calls, 'call')} of "
        f"{counted(len(kernels), 'operator tuple')}, "
        f"{counted(len(model.calls) - calls, 'call')} of views; {_work(kernels)}, "
        f"{scaled(model.parameters or 0, '', 4).strip()} parameters{_memory(model)}"
    )
    tensors = (spec for record, _ in kernels for _, spec in record.operator_tuple.tensors)
    is_complex = any(spec.dtype.startswith("complex") for spec in tensors)
    return "\n".join(wrapped([text, _COMPLEX_FLOPS if is_complex else _FLOPS]))


def _work(kernels: Sequence[tuple[TupleRecord, int]]) -> str:
    """The FLOPs of all calls; a lower limit, and the operators whose FLOPs are unknown, if any."""
    unknown = dict.fromkeys(each.operator_tuple.name for each, _ in kernels if each.flops is None)
    known = sum(count * each.flops for each, count in kernels if each.flops is not None)
    work, names = scaled(known, "FLOPs", 4), ", ".join(unknown)
    if unknown and not known:
        return f"unknown FLOPs (of {names})"
    return f"at least {work} (those of {names} are unknown)" if unknown else work


def _memory(model: ModelTuples) -> str:
    peak = model.activation_peak_bytes
    return "" if peak is None else f", {scaled(peak, 'B')} of activations at their peak"


def _targets(explanations: Sequence[Explanation]) -> list[str]:
    rows = [explanation.compared for explanation in explanations]
    cells = [
        {
            "target": explanation.target,
            "device": explanation.device_name or "-",
            "conditions": _conditions(explanation, explanations),
            "of": _cost_of(row),
            **costs,
            "tuples": f"{row['measured_tuples']}/{row['tuples']}",
            "protocol": str(explanation.protocol_version or "-"),
            "database": source,
        }
        for explanation, source, row, costs in zip(
            explanations, sources_of(explanations), rows, cost_cells(rows), strict=True
        )
    ]
    several = len({cell["protocol"] for cell in cells} - {"-"}) > 1
    shown = {"protocol": several, "conditions": any(cell["conditions"] for cell in cells)}
    titles = [title for title in cells[0] if shown.get(title, True)]
    values = [[cell[title] for title in titles] for cell in cells]
    notes = {
        _MEASUREMENT_ALONE: any(cell["of"] == _SUM_ALONE for cell in cells),
        _SEVERAL_PROTOCOLS: several,
    }
    return [
        *table(titles, values, left=titles.index("of") + 1),
        *wrapped(note for note, applies in notes.items() if applies),
    ]


def _conditions(explanation: Explanation, explanations: Sequence[Explanation]) -> str:
    """How a target differs from others of its name in a merged database; "" without any."""
    place = (explanation.database, explanation.target)
    alike = [each for each in explanations if (each.database, each.target) == place]
    if len(alike) == 1:
        return ""
    firsts = [row for each in alike for row in each.estimate.rows[:1]]
    differ = [column.name for column in disagreements(firsts, COLUMNS)]
    row = next(iter(explanation.estimate.rows), {})
    parts = [f"{name} {row[name]}" for name in differ if name in row]
    return ", ".join([f"{explanation.conditions_id}", *parts[:_DIFFERENCES]])


def _cost_of(compared: Row) -> str:
    """What the headline is the cost of, and what its interval lacks."""
    if compared.get(TIME.of("end_to_end").value) is not None:
        return "whole"
    if compared[TIME.of("estimate").value] is None:
        return "-"
    sums = [each for each in COMPARED if compared[each.of("estimate").value] is not None]
    return (
        "sum" if all(compared[each.model_error_half] is not None for each in sums) else _SUM_ALONE
    )


def sources_of(explanations: Sequence[Explanation]) -> list[str]:
    """The database of each, with the day of its last measurement of the model's operators. Those of
    one file name are told apart by their paths.
    """
    names = Counter(path.name for path in {each.database for each in explanations})
    found = []
    for each in explanations:
        name = each.database.name if names[each.database.name] == 1 else str(each.database)
        name = "reference data" if each.database.parent == REFERENCE else name
        found.append(f"{name}{f' of {each.measured_on}' if each.measured_on else ''}")
    return found


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
    if not estimate.rows:
        return "\n".join([*lines, *_missing(explanation)])
    if estimate.conflict is None:
        operators = operator_lines(explanation.parts(), explanation.parts(ENERGY), top)
        lines += ["", *indented(operators)]
        lines += ["", *indented("\n".join(_modules(explanation, top, depth)).split("\n"))]
    if phases := phase_lines([explanation.compared], named=False):
        lines += ["", *indented(phases)]
    if explanation.compared.get(TIME.of("end_to_end").value):
        lines += ["", *indented(_trust(explanation))]
    lines += ["", *wrapped(_notes(model, explanation), "  "), *_missing(explanation)]
    return "\n".join(lines)


def _modules(explanation: Explanation, top: int, depth: int | None) -> list[str]:
    """The tree of modules; nothing for a model without operators."""
    model, modules = explanation.estimate.model, explanation.modules(depth)
    most, parameters = None if depth else top, (model.module_parameters, model.own_parameters)
    tree = module_tree(explanation.compared, modules, most, NOTABLE, *parameters)
    return ["\n".join(module_lines(tree, model.model))] if tree else []


def _trust(explanation: Explanation) -> list[str]:
    """The estimate beside the measured whole model."""
    compared = explanation.compared
    rows = [
        {"breakdown of": str(quantity), **trust_cells(compared, quantity)}
        for quantity in COMPARED
        if compared[quantity.of("end_to_end").value] is not None
    ]
    titles = list(rows[0])
    return table(titles, [[row.get(title, "-") for title in titles] for row in rows])


def _notes(model: ModelTuples, explanation: Explanation) -> list[str]:
    compared = explanation.compared
    waits = waiting(compared)
    timed = explanation.estimate.in_context.rows() if "in_context_reason" in compared else []
    notes = [
        *phase_notes([compared]),
        *(meanings([compared]) if TIME.of("end_to_end").value in compared else []),
        *caveats([compared], in_context=timed),
        *([_UNVERIFIED] if explanation.calls_unverified else []),
        *([note] if timed and (note := in_context_text.note(compared, timed)) else []),
        *_recorded(model, explanation),
        *([f"{waits}."] if waits else []),
    ]
    if explanation.whole_conflict and not explanation.estimate.conflict:
        notes.append(f"The whole model is left out: {explanation.whole_conflict}.")
    elif compared.get(TIME.of("end_to_end").value) and compared[TIME.of("estimate").value]:
        notes.insert(0, _SHARES)
    elif explanation.estimate.time and TIME.of("end_to_end").value not in compared:
        notes.insert(0, _never_measured(compared))
    return notes


def _never_measured(compared: Row) -> str:
    """What the interval of a sum consists of that no measurement of the whole confirms."""
    measurement, error = compared[TIME.measurement_half], compared[TIME.model_error_half]
    if error is None or measurement is None:
        return f"{_NOT_COMPARED}: opcost run measures it."
    models = counted(compared["model_error_models"], "model")
    return (
        f"{_NOT_COMPARED}. The interval of its time holds the uncertainty of the measurements "
        f"({plus_minus(measurement)}) and the model error ({plus_minus(error)}), from {models} "
        "measured end to end."
    )


def _recorded(model: ModelTuples, explanation: Explanation) -> list[str]:
    """By which calls the device differs from those extracted, of the first line."""
    found = model.differing_calls(explanation.estimate.model.launched())
    text = "Calls recorded on this device, compared with those above"
    return [f"{text}: {some(found, _RECORDED)}."] if found else []


def _missing(explanation: Explanation) -> list[str]:
    return missing_lines(explanation.missing, len(explanation.estimate.terms))


def _remedy(definition: ModelDefinition | None, name: str | None) -> str:
    how = "opcost.run(module, inputs)"
    if definition is not None and name is not None:
        how = run_command(definition, name)
    return f"To measure what is missing, and only that, on this machine:\n\n    {how}"
