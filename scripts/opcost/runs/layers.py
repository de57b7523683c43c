"""The layers of a run's models: configs that list them, and what they cost."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from opcost.costs.terms import Row
from opcost.errors import OpcostError
from opcost.plain_yaml import read_yaml
from opcost.results_folder import COMPARISON, MODULES, extraction
from opcost.rows import records, schemas
from opcost.rows.quantities import ENERGY, TIME
from opcost.runs.models import Variant
from opcost.runs.study_file import read_studies
from opcost.study import Study
from opcost.text import table, with_interval, wrapped
from opcost.tuples.model_tuples import ModelTuples, read_model_tuples

_SUFFIX = "_layers"
_MEANING = (
    "calls: how often the model runs this layer and equal ones, which make the same calls; - if it "
    "makes others inside the model than alone. operators: the sum over its operators, measured "
    "alone. in place: what its calls take inside the running model, in the mean. alone, energy: "
    "the module run alone, in a loop, on what it gets inside the model, with weights from memory. "
    "share: of the energy of the whole model."
)
_WHOLE_S, _WHOLE_J = TIME.of("reference").value, ENERGY.of("reference").value
_MOST = 200


class _Kind(NamedTuple):
    """Equal layers of a model: their class and paths."""

    module_class: str
    paths: list[str]


def layer_configs(only: Mapping[str, Sequence[str]]) -> list[Variant]:
    """A config for each model, which lists one of each kind of its layers.

    Raises OpcostError for a model that has none.
    """
    directory = read_studies().directory
    found = []
    for name in dict.fromkeys(model for models in only.values() for model in models):
        kinds = _kinds(_extracted(name))
        if not kinds:
            raise OpcostError(
                f"{name} has no layer that can be run alone: that takes a model of inference with "
                "modules that call operators"
            )
        if len(kinds) > _MOST:
            raise OpcostError(
                f"{name} has {len(kinds)} kinds of layers, more than {_MOST}: list those of "
                f"interest under `layers` in {directory / name}.yaml"
            )
        config = read_yaml(directory / f"{name}.yaml")
        if "layers" in config:
            found.append(Variant(name, config))
            continue
        paths = [each.paths[0] for each in kinds]
        found.append(Variant(f"{name}{_SUFFIX}", {**config, "layers": paths}))
    return found


def layer_answer(only: Mapping[str, Sequence[str]] | None) -> tuple[str, bool]:
    """Tables of the layers of these configs on each target, the costliest first; and whether all of
    them were measured.
    """
    study = read_studies().study(only)
    comparison, modules = (
        records.read(path, schema).to_pylist()
        for path, schema in ((COMPARISON, schemas.COMPARISON), (MODULES, schemas.MODULES))
    )
    lines, complete = [], True
    for target, names in (only or {}).items():
        compared = {row["model"]: row for row in comparison if row["target"] == target}
        for name in names:
            own = [row for row in modules if (row["target"], row["model"]) == (target, name)]
            cells = [*_cells(study, name, compared, own)]
            complete &= all(_is_measured(compared.get(each)) for each in study.models_of(name))
            if cells:
                lines += [f"{name} on {target}, layer by layer, each run alone as in the model:"]
                lines += [*table(list(cells[0]), [list(each.values()) for each in cells], 2), ""]
    notes = [_MEANING, *_without_energy(comparison, only or {})]
    return "\n".join([*lines, *wrapped(notes)]), complete


def _without_energy(comparison: Sequence[Row], only: Mapping[str, Sequence[str]]) -> list[str]:
    """Why models have no energy."""
    reasons = {
        row["energy_reason"]
        for row in comparison
        if row["model"] in only.get(row["target"], ()) and row[_WHOLE_J] is None
    }
    return [f"No energy: {reason}." for reason in sorted(filter(None, reasons))]


def _cells(
    study: Study, name: str, compared: Mapping[str, Row], modules: Sequence[Row]
) -> Iterator[dict[str, Any]]:
    whole_j = compared[name][_WHOLE_J] if name in compared else None
    model, found = _extracted(name), []
    for layer in study.models_of(name):
        path, row = study.models[layer].layer, compared.get(layer)
        if path is not None and row is not None and _is_measured(row):
            alone = _extracted(layer)
            found.append((path, _calls(model, [path], alone), _all_calls(model, path, alone), row))
    found.sort(key=lambda each: -(each[2] or 1) * each[3][_WHOLE_S])
    for path, own, calls, row in found:
        energy = ENERGY.of("reference").read(row)
        inside_s = [
            each["in_place_time_s"] for each in modules if _within(each["module_path"], path)
        ]
        known = own and inside_s and None not in inside_s
        all_j = calls * energy.value if calls and energy else None
        yield {
            "layer": path,
            "class": _class(model, path),
            "calls": str(calls) if calls else "-",
            "in place": TIME.show(math.fsum(inside_s) / own) if known and own else "-",
            "operators": TIME.show(row["operators_time_s"]) if row["operators_time_s"] else "-",
            "alone": with_interval(TIME.of("reference").read(row), TIME.show),
            "energy": with_interval(energy, ENERGY.show),
            "of all calls": "-" if all_j is None else ENERGY.show(all_j),
            "share": f"{all_j / whole_j:.0%}" if all_j and whole_j else "-",
        }


def _all_calls(model: ModelTuples, path: str, layer: ModelTuples) -> int | None:
    """How often the model runs a layer or an equal one."""
    equal = next((kind.paths for kind in _kinds(model) if path in kind.paths), [path])
    return _calls(model, equal, layer)


def _calls(model: ModelTuples, paths: Sequence[str], layer: ModelTuples) -> int | None:
    """How often the model runs equal layers; None if they make other calls there than alone."""
    alone = _ids(layer)
    inside = [tuple_id for path in paths for tuple_id in _ids(model, path)]
    times, rest = divmod(len(inside), len(alone)) if alone else (0, 1)
    return times if not rest and inside == alone * times else None


def _ids(model: ModelTuples, path: str | None = None) -> list[str]:
    """The tuples of a model's calls, or of those within a module."""
    ids = list(model.by_id)
    return [
        ids[call.position]
        for call in model.calls
        if path is None or _within(call.module_path, path)
    ]


def _within(module: str, path: str) -> bool:
    return module == path or module.startswith(f"{path}.")


def _class(model: ModelTuples, path: str) -> str:
    return next((call.module_class for call in model.calls if call.module_path == path), "")


def _is_measured(row: Row | None) -> bool:
    return row is not None and row[_WHOLE_S] is not None


def _extracted(name: str) -> ModelTuples:
    return read_model_tuples(extraction(name))


def _kinds(model: ModelTuples) -> list[_Kind]:
    """The modules that call kernels themselves, in the order of their calls; equal ones together.

    Equal modules are of one class and make the same calls. One that contains others is left out,
    unless these make no calls, because its own operators are not all that it runs.
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
