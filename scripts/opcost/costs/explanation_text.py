"""The explanation of a model's cost as text: what it costs, where it goes, and the caveats."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opcost import statistics
from opcost.costs.answers import measured_inputs
from opcost.costs.caveats import caveats
from opcost.costs.cost_tables import missing_lines, module_lines, operator_lines
from opcost.costs.estimate import ModelEstimate
from opcost.costs.explanation import Explanation
from opcost.costs.headline import cost_cells, headline, known_as, source
from opcost.costs.host import waiting
from opcost.costs.in_context_text import difference_cells
from opcost.costs.model_argument import run_command
from opcost.costs.module_tree import NOTABLE, module_tree
from opcost.costs.phases import phase_lines
from opcost.costs.terms import Row, terms_of
from opcost.costs.trust import ALWAYS_SHOWN, predicted_range, trust_cells, trust_in_all
from opcost.databases.database import REFERENCE
from opcost.models.definition import ModelDefinition
from opcost.results_folder import ANSWERS, DATABASE
from opcost.rows.comparability import COLUMNS, disagreements
from opcost.rows.flags import POWER_CAPPED
from opcost.rows.quantities import COMPARED, ENERGY, TIME
from opcost.study import BURST
from opcost.text import (
    counted,
    fitted,
    percent,
    plus_minus,
    scaled,
    significant,
    some,
    table_of,
    with_interval,
    with_meaning_of_noise,
    with_values,
    wrapped,
)
from opcost.tuples.model_tuples import ModelTuples
from opcost.tuples.tuple_record import TupleRecord

_RECORDED = 5
_FLOPS = "1 multiply-add = 2 FLOPs"
_COMPLEX_FLOPS = "1 multiply-add = 2 FLOPs, of complex numbers 8"
_DIFFERENCES = 2
_SIDE_BY_SIDE = 3
_MISSING = 3
_OTHER_INPUTS = 4
_NOTABLE_SHARE = 0.01
_ESTIMATE = (
    "Estimates from isolated operators. ± (95 %) includes how far estimates of other models are "
    "off."
)
_ESTIMATE_ALONE = (
    "Estimates from isolated operators. ± (95 %) lacks the model error: how far such estimates are "
    "off is unknown there."
)
_SEVERAL_PROTOCOLS = (
    "protocol: the version of the measurement protocol. Costs of different versions may differ on "
    "one device, too: CHANGELOG.md says by what."
)
_NO_TF32 = (
    "Measured without TF32, which PyTorch uses in convolutions on a GPU unless told otherwise."
)
_UNVERIFIED = "Calls were extracted on a processor: on a GPU, a few may differ."


def as_text(
    model: ModelTuples,
    explanations: Sequence[Explanation],
    top: int,
    depth: int | None,
    name: str | None = None,
    details: bool = False,
) -> str:
    """The model; its cost on each target, side by side, in all and by operator; its modules on one
    of them; and what to know of these numbers, with `details` all that is known.

    Lists the `top` operators and a tree of about as many modules, or, with `depth`, the `top` paths
    cut after so many names. `name` is what the model was found by (model_argument.py); None for a
    module in use.
    """
    known = [each for each in explanations if each.has_data]
    measured = [each for each in known if each.estimate.rows and each.estimate.conflict is None]
    parts = [_model_lines(model)]
    if known:
        parts.append("\n".join(_targets(known)))
    if measured:
        breakdowns = [(each.target, each.parts(), each.parts(ENERGY)) for each in measured]
        parts.append("\n".join(operator_lines(breakdowns[:_SIDE_BY_SIDE], top)))
        most = max(measured, key=lambda each: len(each.estimate.measured))
        parts += _modules(model.model, most, top, depth, len(measured) > 1)
    elif not any(each.estimate.rows for each in known):
        parts += no_data(explanations)
        unmeasured = ModelEstimate(model, terms_of(model, {}, set()))
        parts += _modules(model.model, Explanation(Path(), "", None, unmeasured), top, depth)
    if phases := [line for each in measured for line in _phases(each, len(measured) > 1)]:
        parts.append("\n".join(phases))
    notes = _notes(known)
    if details:
        parts += ["\n".join(notes), *(_details(model, each) for each in known)]
        notes = []
    last = no_data(explanations) if any(each.estimate.rows for each in known) else []
    last += _other_inputs(model, explanations) if any(each.missing for each in explanations) else []
    here = [each for each in explanations if each.database.resolve() == DATABASE.resolve()]
    if any(each.missing for each in here or explanations) or not explanations:
        last.append(_remedy(model.definition, name, not here))
    if known and not details:
        last.append("More with --details: flags, run-to-run variation, what ± holds.")
    parts.append("\n".join([*notes, *last]))
    return with_meaning_of_noise("\n\n".join(filter(None, parts)))


def no_data(found: Sequence[Any]) -> list[str]:
    """The targets whose databases have none of the operators, in a line, and under which other
    conditions they have some; nothing without any.
    """
    without = [each for each in found if not each.has_data]
    lines = [f"No data: {', '.join(dict.fromkeys(each.target for each in without))}"]
    if elsewhere := dict.fromkeys(name for each in without for name in each.elsewhere):
        options = " ".join(f"--target {name}" for name in elsewhere)
        lines.append(f"Measured under other conditions, which this shows: {options}")
    refused = [term for each in without for term in each.missing if term.refusal]
    if refused and len(found) == 1:
        name, target = refused[0].record.operator_tuple.name, found[0].target
        lines += wrapped([f"Not predicted on {target}: {name}: {refused[0].refusal}"])
    return ["\n".join(lines)] if without else []


def _other_inputs(model: ModelTuples, explanations: Sequence[Explanation]) -> list[str]:
    """On which other inputs the model was measured, according to the answers beside databases."""
    found: dict[str, list[str]] = {}
    for database in dict.fromkeys(each.database for each in explanations):
        for path in (database.parent / ANSWERS.name, *database.parent.glob(f"*/{ANSWERS.name}")):
            if path.is_file():
                for inputs, targets in measured_inputs(model.model, path).items():
                    found.setdefault(inputs, []).extend(targets)
    found.pop(", ".join(map(str, model.inputs)), None)
    texts = [f"{inputs} ({', '.join(dict.fromkeys(on))})" for inputs, on in found.items()]
    return [f"Measured with other inputs: {some(texts, _OTHER_INPUTS)}"] if texts else []


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
    return "\n".join(wrapped([f"{text} ({_COMPLEX_FLOPS if is_complex else _FLOPS})"]))


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
    """A table of the cost on each target."""
    rows = [explanation.compared for explanation in explanations]
    names_operation = any(row["operation"] not in (BURST, None) for row in rows)
    cells = [
        {
            "target": explanation.target,
            "device": _device(explanation, row, names_operation),
            "conditions": _conditions(explanation, explanations),
            **costs,
            **_lower_limit(row),
            "source": source(row),
            "operators": f"{row['measured_tuples']}/{row['tuples']}",
            "protocol": str(explanation.protocol_version or "-"),
            "database": database,
        }
        for explanation, database, row, costs in zip(
            explanations, sources_of(explanations), rows, cost_cells(rows), strict=True
        )
    ]
    several = len({cell["protocol"] for cell in cells} - {"-"}) > 1
    needed = {
        "protocol": several,
        "conditions": any(cell["conditions"] for cell in cells),
        "operators": any(row["measured_tuples"] < row["tuples"] for row in rows),
        "database": len({cell["database"].partition(" of ")[0] for cell in cells}) > 1,
        "source": {cell["source"] for cell in cells} != {"estimate"},
    }
    kept = [
        {title: text for title, text in cell.items() if needed.get(title, True)} for cell in cells
    ]
    left = 2 + needed["conditions"]
    return [
        *fitted(kept, ("samples/s", "time/sample", "energy/sample"), left),
        *wrapped([_SEVERAL_PROTOCOLS] if several else []),
    ]


def _device(explanation: Explanation, row: Row, names_operation: bool) -> str:
    """The device, and what of its settings changes what a cost means."""
    parts = [explanation.device_name or "-"]
    parts += ["no TF32"] if explanation.lacks_tf32 else []
    parts += [row["operation"] or BURST] if names_operation else []
    return ", ".join(parts)


def _lower_limit(compared: Row) -> dict[str, str]:
    """The time of the measured operators, if others are missing."""
    known_s, unknown = compared["partial_time_s"], known_as(compared) == "-"
    return {"time": f">{TIME.show(known_s, 3)}"} if known_s and unknown else {}


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


def _modules(
    name: str, explanation: Explanation, top: int, depth: int | None, named: bool = False
) -> list[str]:
    """The tree of modules of the model `name` on a target, which is `named` if there are several;
    nothing for a model without operators.
    """
    model, modules = explanation.estimate.model, explanation.modules(depth)
    most, parameters = None if depth else top, (model.module_parameters, model.own_parameters)
    tree = module_tree(explanation.compared, modules, most, NOTABLE, *parameters)
    where = f"modules on {explanation.target}" if named else "modules"
    return ["\n".join(module_lines(tree, name, where))] if tree else []


def _phases(explanation: Explanation, named: bool) -> list[str]:
    """The phases of a training step on a target."""
    lines = phase_lines([explanation.compared], named=False)
    return [f"Phases on {explanation.target}:", *lines] if lines and named else lines


def _notes(known: Sequence[Explanation]) -> list[str]:
    """What a reader must know of the numbers, each once."""
    rows = [each.compared for each in known]
    notes, missing = [], []
    for each, row in zip(known, rows, strict=True):
        if each.estimate.time is None:
            notes.append(f"No time on {each.target}: {each.estimate.time_reason}.")
        elif row[TIME.of("end_to_end").value] is not None:
            total = with_interval(TIME.of("estimate").read(row), TIME.show)
            trust = f"{trust_in_all(row)}. It adds up to {total}."
            notes.append(f"Trust in the breakdown on {each.target}: {trust}")
        if row["overhead_disturbed"]:
            notes.append(f"The call overhead on {each.target} is too high: it was disturbed.")
        if each.end_to_end_conflict and not each.estimate.conflict:
            why = each.end_to_end_conflict
            notes.append(f"The end-to-end measurement on {each.target} is left out: {why}.")
        share = each.estimate.predicted_share()
        if share and each.estimate.time is not None:
            notes.append(
                f"On {each.target}, {percent(share)} of the time is predicted (~): of operators "
                "that nobody measured there, from others that somebody did. ± includes how far "
                "such predictions are off."
            )
        missing += missing_lines(each.target, each.missing, len(each.estimate.terms), _MISSING)
    capped = [
        f"{percent(share)} on {each.target}"
        for each, row in zip(known, rows, strict=True)
        if (share := each.estimate.flagged_share(POWER_CAPPED)) >= _NOTABLE_SHARE
        and row["operation"] in (BURST, None)
    ]
    if capped:
        notes.append(
            f"Share of the time in operators at the power limit: {', '.join(capped)}. Theirs are "
            "times and powers of bursts; sustained work is slower."
        )
    estimated = [row for row in rows if known_as(row) == "estimate"]
    if estimated:
        halves = [
            row[quantity.model_error_half]
            for row in estimated
            for quantity in COMPARED
            if row[quantity.of("estimate").value] is not None
        ]
        notes.append(_ESTIMATE_ALONE if None in halves else _ESTIMATE)
    reasons = [row["energy_reason"] for row in rows if row["energy_reason"] != row["time_reason"]]
    if any(row[ENERGY.of("estimate").value] for row in rows):
        gain = max(row["energy_gain_uncertainty"] or 0.0 for row in rows)
        notes += (
            [f"The gain of the power sensor may be off by {gain:.0%}, which ± does not include."]
            if gain
            else []
        )
    elif any(reasons):
        notes.append(f"No energy: {next(filter(None, reasons))}.")
    notes += _ratio(known) if len(known) == 2 else []
    notes += [_UNVERIFIED] if any(each.calls_unverified for each in known) else []
    notes += [_NO_TF32] if any(each.lacks_tf32 for each in known) else []
    return [*wrapped(notes), *missing]


def _ratio(known: Sequence[Explanation]) -> list[str]:
    """How the second target compares with the first, if both were measured, or both estimated."""
    first, second = known
    if len({known_as(each.compared) for each in known}) > 1:
        return []
    ratios = [
        f"{quantity} {with_interval(statistics.ratio(after, before), significant)}"
        for quantity in COMPARED
        for before, after in [[headline(each.compared).cost(quantity) for each in known]]
        if before and after
    ]
    names = f"{second.target} / {first.target}"
    return [f"{names}: {', '.join(ratios)}."] if ratios and second.target != first.target else []


def _details(model: ModelTuples, explanation: Explanation) -> str:
    """All that is known of the numbers on one target."""
    compared = explanation.compared
    where = f"{explanation.target}, of {explanation.database}"
    if explanation.conditions_id:
        where += f" ({explanation.conditions_id})"
    lines = [f"Details of target {where}", *_comparison(compared)]
    lines += table_of(difference_cells([compared]))
    waits = waiting(compared)
    notes = [
        *_interval(compared),
        *caveats([compared], in_context=explanation.estimate.in_context.rows()),
        *_recorded(model, explanation),
        *([f"{waits}."] if waits else []),
    ]
    every = []
    for term in explanation.missing:
        if found := explanation.predictions(term).get(TIME):
            near = "; ".join(f"{row['description']}: {TIME.shown(row)}" for row in found.nearest)
            times = 2**found.octaves_beyond
            far = f", a size {times:.1f} times beyond those measured there" if times > 1 else ""
            text = f"{term.calls} x {term.record.operator_tuple}: predicted"
            text += f"{far}: {with_interval(found.cost, TIME.show)}, from {near}"
            every += wrapped([text], "  ")
    if not every:
        terms = len(explanation.estimate.terms)
        every = missing_lines(explanation.target, explanation.missing, terms, 10)
    return "\n".join([*lines, *wrapped(notes, "  "), *every])


def _comparison(compared: Row) -> list[str]:
    """The estimate beside the end-to-end measurement; nothing without one."""
    rows = [
        {"breakdown of": str(quantity), **trust_cells(compared, quantity)}
        for quantity in COMPARED
        if compared[quantity.of("end_to_end").value] is not None
    ]
    return table_of(with_values(rows, ALWAYS_SHOWN))


def _interval(compared: Row) -> list[str]:
    """What the interval of an estimate consists of."""
    measurement, error = compared[TIME.measurement_half], compared[TIME.model_error_half]
    if error is None or measurement is None:
        return []
    models = counted(compared["model_error_models"], "model")
    reach = predicted_range(compared)
    predicted = f"; predictions, {reach}" if reach else ""
    return [
        f"± of the estimated time: {plus_minus(measurement)} from the measurements of operators"
        f"{predicted}; and the model error, {plus_minus(error)}, from {models} measured end to end."
    ]


def _recorded(model: ModelTuples, explanation: Explanation) -> list[str]:
    """By which calls the device differs from those extracted, of the first line."""
    found = model.differing_calls(explanation.estimate.model.launched())
    text = "Calls recorded on this device, compared with those above"
    return [f"{text}: {some(found, _RECORDED)}."] if found else []


def _remedy(definition: ModelDefinition | None, name: str | None, elsewhere: bool) -> str:
    how = "opcost.run(module, inputs)"
    if definition is not None and name is not None:
        how = run_command(definition, name)
    where = "(there, or on this machine)" if elsewhere else "on this machine"
    return f"To measure what is missing {where}: {how}"
