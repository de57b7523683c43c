"""The isolated modules ("layers") of a run's models: configs that list them, and their costs."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from opcost.costs.answers import costs_of_models
from opcost.costs.caveats import INTERVAL, caveats
from opcost.costs.explanation import explain_in_study
from opcost.costs.in_context import IN_CONTEXT, between_calls
from opcost.costs.in_context_table import BETWEEN, WHOLE
from opcost.costs.terms import Row
from opcost.errors import OpcostError
from opcost.models.variants import Variant
from opcost.results_folder import ANSWERS
from opcost.rows.quantities import ENERGY, TIME, Quantity
from opcost.runs.request import Request, extracted
from opcost.statistics import Estimate
from opcost.text import (
    counted,
    percent,
    table,
    with_interval,
    with_margin,
    without_interval,
    wrapped,
)
from opcost.tuples.model_tuples import ModelTuples

_SUFFIX = "_layers"
_MEANING = (
    "calls: how often the model runs this layer and equal ones, which make the same calls; - if it "
    "makes different calls inside the model. in context: the mean time of its calls inside the "
    "running model. time share: the total of all equal ones there, relative to the model's "
    "end-to-end time. operators: the estimate from its isolated operators. isolated, energy: the "
    "module run isolated, in a loop, on its arguments inside the model, with weights from memory. "
    "all calls: the energy of all of them; energy share: relative to the model's. In the last "
    "rows, in context is a total; between calls is Python and views. Time shares add up to 100 %, "
    "except for rounding, unless layers are listed that are equal or contain each other. "
    f"{INTERVAL} of the isolated module; times without it are rounded accordingly."
)
_OTHERS = "(other calls)"
_END_TO_END_S, _END_TO_END_J = TIME.of("end_to_end").value, ENERGY.of("end_to_end").value
_MOST = 200


class _Kind(NamedTuple):
    """Equal layers of a model: their class and paths."""

    module_class: str
    paths: list[str]


class _Line(NamedTuple):
    """A row of the table, and its seconds inside the model, if known."""

    cells: dict[str, str]
    inside_s: float | None


def layer_configs(request: Request) -> list[Variant]:
    """A config for each model that lists one of each kind of its layers.

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
        if "layers" in config:
            found.append(Variant(name, config, is_named=True))
            continue
        paths = [each.paths[0] for each in kinds]
        layered = {**config, "layers": paths}
        found.append(Variant(f"{name}{_SUFFIX}", layered, is_named=True))
    return found


def layers_to_come(request: Request) -> str | None:
    """A note on the isolated measurements that follow; None unless each model is measured.

    Raises OpcostError for a model without layers.
    """
    measured = {
        (row["target"], row["model"]) for row in costs_of_models(ANSWERS) if _is_measured(row)
    }
    if not request.asked <= measured:
        return None
    notes = [
        f"{each.name}: next, {counted(len(each.config['layers']), 'kind')} of layers are run "
        "isolated, each on its arguments inside the model. These are further measurements: each "
        "layer is measured like a model, and the model is measured again end to end, under this "
        "name."
        for each in layer_configs(request)
    ]
    return "\n".join(wrapped(notes))


def layer_answer(request: Request) -> tuple[str, bool]:
    """Tables of the layers of these configs on each target, the costliest first; and whether all of
    them were measured.
    """
    study, models = request.study, extracted(request.study)
    comparison = costs_of_models(ANSWERS)
    lines, notes, complete = [], [_MEANING], True
    for target in study.conditions:
        found: list[Row] = []
        compared = {row["model"]: row for row in comparison if row["target"] == target}
        for name in study.configs:
            own = explain_in_study(models[name], target).estimate.in_context.modules()
            layers = {each: models[each] for each in study.models_of(name)}
            cells = _cells(models[name], layers, compared, own)
            rows = [row for each in study.models_of(name) if (row := compared.get(each))]
            found += rows
            complete &= len(rows) == len(study.models_of(name)) and all(map(_is_measured, rows))
            if cells:
                lines += [f"{name} on {target}, layer by layer, each run isolated:"]
                lines += [*table(list(cells[0]), [list(each.values()) for each in cells], 2), ""]
                listed = [
                    path for each in study.models_of(name) if (path := study.models[each].layer)
                ]
                end_to_end_s = compared.get(name, {}).get(_END_TO_END_S)
                notes += _not_run(models[name], listed, own, end_to_end_s)
        notes += caveats(found, quantities=())
    notes += _without_energy(
        row
        for row in comparison
        if row["target"] in study.conditions and row["model"] in study.configs
    )
    return "\n".join([*lines, *wrapped(notes)]), complete


def _not_run(
    model: ModelTuples,
    listed: Sequence[str],
    modules: Sequence[Row],
    end_to_end_s: float | None,
) -> Iterator[str]:
    """A note on calls of operators outside the listed layers."""
    run = [path for layer in listed for path in _equal(model, layer)]
    others = {
        call.module_path: call.module_class
        for call in model.calls
        if model.tuples[call.position].launches_kernel and not _in_any(call.module_path, run)
    }
    if not others:
        return
    counts = Counter(others.values())
    classes = ", ".join(f"{kind} ({count})" for kind, count in counts.items())
    inside_s = _in_context_s([row for row in modules if row["module_path"] in others])
    share = f", {inside_s / end_to_end_s:.1%} of its time" if inside_s and end_to_end_s else ""
    yield (
        f"Other calls: operators that these modules of {model.model} call directly{share}: "
        f"{classes}. Only modules whose children call no operators are run, unless `layers` in "
        "the model's config names others."
    )


def _in_context_s(modules: Sequence[Row]) -> float | None:
    """Seconds of modules in context; None if unknown."""
    return math.fsum(row[IN_CONTEXT.value] for row in modules) if modules else None


def _without_energy(rows: Iterable[Row]) -> list[str]:
    """The reasons of models without energy."""
    reasons = {row["energy_reason"] for row in rows if row[_END_TO_END_J] is None}
    return [f"No energy: {reason}." for reason in sorted(filter(None, reasons))]


def _cells(
    model: ModelTuples,
    parts: Mapping[str, ModelTuples],
    compared: Mapping[str, Row],
    modules: Sequence[Row],
) -> list[dict[str, str]]:
    """A row for each measured layer, for the rest of the model, and for the total."""
    layers = _layers(model, parts, compared, modules)
    if not layers:
        return []
    total = compared.get(model.model)
    rest = _rest(model, list(layers), total, modules) if total else []
    end_to_end_s = total[_END_TO_END_S] if total else None
    rows = [
        each.cells | {"time share": percent(_share(each.inside_s, end_to_end_s), 1)}
        for each in [*layers.values(), *rest]
    ]
    if total:
        rows.append(
            {
                "layer": WHOLE,
                "calls": "1",
                "in context": with_interval(TIME.of("end_to_end").read(total), TIME.show),
                "time share": "100.0%",
                "energy": with_interval(ENERGY.of("end_to_end").read(total), ENERGY.show),
            }
        )
    known = [title for title in rows[0] if any(row.get(title, "") not in ("", "-") for row in rows)]
    return [{title: row.get(title, "") for title in known} for row in rows]


def _share(inside_s: float | None, end_to_end_s: float | None) -> float | None:
    return inside_s / end_to_end_s if inside_s is not None and end_to_end_s else None


def _layers(
    model: ModelTuples,
    parts: Mapping[str, ModelTuples],
    compared: Mapping[str, Row],
    modules: Sequence[Row],
) -> dict[str, _Line]:
    """Path -> line of each measured layer, the costliest first."""
    found = []
    model_j = compared.get(model.model, {}).get(_END_TO_END_J)
    for layer, isolated in parts.items():
        path = isolated.definition.layer if isolated.definition else None
        row = compared.get(layer)
        if path is not None and row is not None and _is_measured(row):
            calls = _calls(model, [path], isolated), _calls(model, _equal(model, path), isolated)
            found.append((path, *calls, row))
    found.sort(key=lambda each: -(each[2] or 1) * each[3][_END_TO_END_S])
    return {
        path: _layer(model, path, own, calls, row, model_j, modules)
        for path, own, calls, row in found
    }


def _layer(
    model: ModelTuples,
    path: str,
    own: int | None,
    calls: int | None,
    row: Row,
    model_j: float | None,
    modules: Sequence[Row],
) -> _Line:
    """The line of a layer: the model runs the module at `path` `own` times, and all equal ones
    `calls` times.
    """
    energy, run_s = (each.of("end_to_end").read(row) for each in (ENERGY, TIME))
    inside_s, all_inside_s = (
        _in_context_s([row for row in modules if _in_any(row["module_path"], paths)])
        for paths in ([path], _equal(model, path))
    )
    all_j = calls * energy.value if calls and energy else None
    cells = {
        "layer": path,
        "class": next((each.module_class for each in model.calls if each.module_path == path), ""),
        "calls": str(calls) if calls else "-",
        "in context": _like(run_s, inside_s / own if inside_s and own else None, TIME),
        "time share": "",
        "operators": _like(run_s, row["operators_time_s"], TIME),
        "isolated": with_interval(run_s, TIME.show),
        "energy": with_interval(energy, ENERGY.show),
        "all calls": _like(energy, all_j, ENERGY),
        "energy share": f"{all_j / model_j:.0%}" if all_j and model_j else "-",
    }
    return _Line(cells, all_inside_s)


def _rest(
    model: ModelTuples, layers: Sequence[str], total: Row, modules: Sequence[Row]
) -> list[_Line]:
    """The rest of a model outside these layers; empty if its times in context are unknown."""
    between = between_calls(total)
    if between is None or not modules:
        return []
    listed = [path for layer in layers for path in _equal(model, layer)]
    others = [row for row in modules if not _in_any(row["module_path"], listed)]
    others_s = _in_context_s(others) or 0.0
    in_context = _like(IN_CONTEXT.read(total), others_s, TIME)
    return [
        _Line({"layer": _OTHERS, "in context": in_context}, others_s),
        _Line({"layer": BETWEEN, "in context": with_margin(between, TIME.show)}, between.value),
    ]


def _equal(model: ModelTuples, path: str) -> list[str]:
    """The paths of the layer and its equals."""
    return next((kind.paths for kind in _kinds(model) if path in kind.paths), [path])


def _calls(model: ModelTuples, paths: Sequence[str], layer: ModelTuples) -> int | None:
    """How often the model runs equal layers; None if they make other calls there than isolated."""
    isolated = _ids(layer)
    inside = [tuple_id for path in paths for tuple_id in _ids(model, path)]
    times, rest = divmod(len(inside), len(isolated)) if isolated else (0, 1)
    return times if not rest and inside == isolated * times else None


def _ids(model: ModelTuples, path: str | None = None) -> list[str]:
    """The tuple ids of a model's calls, or of calls within a module."""
    ids = list(model.by_id)
    return [
        ids[call.position]
        for call in model.calls
        if path is None or _within(call.module_path, path)
    ]


def _like(precise: Estimate | None, value: float | None, quantity: Quantity) -> str:
    """A value without an interval, rounded like a comparable estimate."""
    relative = precise and precise.relative_half_width
    return without_interval(value, relative * value if relative and value else None, quantity.show)


def _in_any(module: str, paths: Sequence[str]) -> bool:
    return any(_within(module, path) for path in paths)


def _within(module: str, path: str) -> bool:
    return module == path or module.startswith(f"{path}.")


def _is_measured(row: Row | None) -> bool:
    return row is not None and row[_END_TO_END_S] is not None


def _kinds(model: ModelTuples) -> list[_Kind]:
    """The modules that call kernels themselves, in the order of their calls, with equal ones
    grouped.

    Equal modules have the same class and make the same calls. A module that contains others is left
    out, unless these make no calls, because it runs more than its own operators.
    """
    if model.trains or (model.definition and model.definition.cached_tokens is not None):
        return []
    calls: dict[str, list[int]] = defaultdict(list)
    classes = {}
    for call in model.calls:
        calls[call.module_path].append(call.position)
        classes[call.module_path] = call.module_class
    launching = [record.launches_kernel for record in model.tuples]
    kinds: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
    for path, positions in calls.items():
        contains = any(other.startswith(f"{path}.") for other in calls)
        if path and not contains and any(launching[position] for position in positions):
            kinds[classes[path], tuple(positions)].append(path)
    return [_Kind(kind, paths) for (kind, _), paths in kinds.items()]
