"""The isolated modules ("layers") of a run's models: configs that list them, and their costs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from opcost.costs.answers import costs_of_models
from opcost.costs.caveats import INTERVAL, caveats
from opcost.costs.explanation import explain_in_study
from opcost.costs.in_context import InContextTimes, between_calls
from opcost.costs.in_context_text import BETWEEN, WHOLE
from opcost.costs.terms import Row, by_target
from opcost.errors import OpcostError
from opcost.models.variants import Variant
from opcost.results_folder import ANSWERS
from opcost.rows.quantities import ENERGY, TIME
from opcost.runs.request import Request, extracted
from opcost.statistics import Estimate
from opcost.text import percent, table_of, with_interval, with_margin, wrapped
from opcost.tuples.model_tuples import ModelTuples

_SUFFIX = "_layers"
_MEANING = (
    "calls: of the layer and equal ones, which make the same calls; - if they make others inside "
    "the model. in context: the mean time of a call inside the running model; a total in the last "
    "rows. time share, energy share: of all calls, relative to the model end to end. isolated, "
    "energy: of the module run in a loop on its arguments inside the model, with weights from "
    "memory. all calls: their energy. Other calls: operators outside these layers, such as those "
    "that modules with children call directly, and layers that are not measured. "
    f"{INTERVAL}."
)
_OTHERS = "(other calls)"
_MOST = 200


def layer_configs(request: Request) -> list[Variant]:
    """A config for each extracted model that lists one of each kind of its layers.

    Raises OpcostError for a model that has none.
    """
    found, models = [], extracted(request.study)
    for name, config in request.configs().items():
        kinds = _kinds(models[name]) if name in models else []
        if not kinds:
            raise OpcostError(
                f"{name} has no layer that can be run isolated: that takes an inference model with "
                "modules that call operators"
            )
        if len(kinds) > _MOST:
            raise OpcostError(
                f"{name} has {len(kinds)} kinds of layers, more than {_MOST}: list those of "
                "interest under `layers` in a model config"
            )
        if "layers" not in config:
            name, config = f"{name}{_SUFFIX}", {**config, "layers": [paths[0] for paths in kinds]}
        found.append(Variant(name, config, is_named=True))
    return found


def layer_answer(request: Request) -> tuple[str, bool]:
    """Tables of the layers of these configs on each target, the costliest first; and whether all of
    them were measured.
    """
    study, models = request.study, extracted(request.study)
    compared = by_target(costs_of_models(ANSWERS))
    lines, notes, complete = [], [_MEANING], True
    for target in study.conditions:
        rows = [row for each in study.models if (row := _measured(compared[target], each))]
        complete &= len(rows) == len(study.models)
        for name in study.configs:
            layers = [models[each] for each in study.models_of(name) if each in models]
            if cells := _cells(models[name], layers, target, compared[target]):
                lines += [f"{name} on {target}, layer by layer, each run isolated:"]
                lines += [*table_of(cells, left=2), ""]
        reasons = (row["energy_reason"] for row in rows if not row[ENERGY.of("end_to_end").value])
        notes += [f"No energy: {reason}." for reason in dict.fromkeys(filter(None, reasons))]
        notes += caveats(rows, quantities=()) if rows else []
    return "\n".join([*lines, *wrapped(dict.fromkeys(notes))]), complete


def _measured(compared: Mapping[str, Row], model: str) -> Row | None:
    """The row of the comparison, if the model was measured end to end."""
    row = compared.get(model)
    return row if row and row[TIME.of("end_to_end").value] is not None else None


def _cells(
    model: ModelTuples, layers: Sequence[ModelTuples], target: str, compared: Mapping[str, Row]
) -> list[dict[str, str]]:
    """A row for each measured layer, the costliest first, for the rest of the model, and for the
    total; empty if no layer was measured.
    """
    whole = _measured(compared, model.model)
    in_context = explain_in_study(model, target).estimate.in_context
    found, listed = [], []
    for layer in layers:
        path, row = layer.definition and layer.definition.layer, _measured(compared, layer.model)
        if path and row:
            equal = next((paths for paths in _kinds(model) if path in paths), [path])
            calls = _calls(model, equal, layer)
            inside = in_context.in_context(in_context.within(equal))
            kind = next((call.module_class for call in model.calls if call.module_path == path), "")
            names = {"layer": path, "class": str(kind), "calls": str(calls or "-")}
            order_s = (calls or 1) * row[TIME.of("end_to_end").value]
            found.append((order_s, names | _costs(row, whole, calls, inside)))
            listed += equal
    if not found:
        return []
    cells = [each for _, each in sorted(found, key=lambda each: -each[0])]
    cells += _rest(in_context, listed, whole) if whole else []
    known = [title for title in cells[0] if any(each.get(title, "-") != "-" for each in cells)]
    return [{title: each.get(title, "") for title in known} for each in cells]


def _costs(
    row: Row, whole: Row | None, calls: int | None, inside: Estimate | None
) -> dict[str, str]:
    """The costs of a layer that takes the time `inside` in so many calls inside the model."""
    time, energy = _end_to_end(row)
    end_to_end_time, end_to_end_energy = _end_to_end(whole)
    all_energy = energy.times(calls) if energy and calls else None
    of_a_call = inside.times(1 / calls) if inside and calls else None
    return {
        "in context": with_interval(of_a_call, TIME.show),
        "time share": _share(inside, end_to_end_time),
        "isolated": with_interval(time, TIME.show),
        "energy": with_interval(energy, ENERGY.show),
        "all calls": with_interval(all_energy, ENERGY.show),
        "energy share": _share(all_energy, end_to_end_energy),
    }


def _rest(in_context: InContextTimes, layers: Sequence[str], whole: Row) -> list[dict[str, str]]:
    """Operators outside these layers and the time between calls, if known, and the whole model."""
    time, energy = _end_to_end(whole)
    inside = {*in_context.within(layers)}
    outside = [number for number in in_context.launching if number not in inside]
    others, between = in_context.in_context(outside), between_calls(whole)
    rest = [
        {"layer": name, "in context": text, "time share": _share(cost, time)}
        for name, cost, text in (
            (_OTHERS, others, with_interval(others, TIME.show) if outside else "-"),
            (BETWEEN, between, with_margin(between, TIME.show)),
        )
        if cost is not None
    ]
    total = {
        "layer": WHOLE,
        "calls": "1",
        "in context": with_interval(time, TIME.show),
        "time share": _share(time, time),
        "energy": with_interval(energy, ENERGY.show),
    }
    return [*rest, total]


def _end_to_end(row: Row | None) -> list[Estimate | None]:
    """Time and energy, as measured end to end."""
    return [quantity.of("end_to_end").read(row) if row else None for quantity in (TIME, ENERGY)]


def _share(part: Estimate | None, whole: Estimate | None) -> str:
    return percent(part.value / whole.value if part and whole else None, 1)


def _calls(model: ModelTuples, paths: Sequence[str], layer: ModelTuples) -> int | None:
    """How often the model runs equal layers; None if they make other calls there than isolated."""
    isolated = _ids(layer)
    inside = [tuple_id for path in paths for tuple_id in _ids(model, path)]
    times, rest = divmod(len(inside), len(isolated)) if isolated else (0, 1)
    return times if not rest and inside == isolated * times else None


def _ids(model: ModelTuples, path: str | None = None) -> list[str]:
    """The tuple ids of a model's calls, or of those within a module."""
    ids = list(model.by_id)
    return [
        ids[call.position]
        for call in model.calls
        if path is None or f"{call.module_path}.".startswith(f"{path}.")
    ]


def _kinds(model: ModelTuples) -> list[list[str]]:
    """The modules that call kernels themselves, in the order of their calls, with equal ones
    grouped.

    Equal modules have the same class and make the same calls. A module that contains others is left
    out, unless these make no calls, because it runs more than its own operators.
    """
    if model.trains or (model.definition and model.definition.generates):
        return []
    calls: dict[str, list[int]] = defaultdict(list)
    classes = {}
    for call in model.calls:
        calls[call.module_path].append(call.position)
        classes[call.module_path] = call.module_class
    kinds: dict[tuple[str | None, tuple[int, ...]], list[str]] = defaultdict(list)
    for path, positions in calls.items():
        contains = any(other.startswith(f"{path}.") for other in calls)
        launching = any(model.tuples[position].launches_kernel for position in positions)
        if path and launching and not contains:
            kinds[classes[path], tuple(positions)].append(path)
    return [*kinds.values()]
