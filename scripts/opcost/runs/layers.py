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
from opcost.text import table, with_interval, wrapped
from opcost.tuples.model_tuples import ModelTuples, read_model_tuples

_SUFFIX = "_layers"
_MEANING = (
    "equal: how many layers of the model make the same calls. operators: the sum over its "
    "operators, measured alone. in place: what its calls take inside the running model, in the "
    "mean over equal layers. layer, energy: the module run alone, in a loop, on what it gets "
    "inside the model, with weights from memory. share: of the energy of the whole model."
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
            cells = [*_cells(name, compared, own)]
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
    name: str, compared: Mapping[str, Row], modules: Sequence[Row]
) -> Iterator[dict[str, Any]]:
    in_place_s: dict[str, float] = defaultdict(float)
    for row in modules:
        in_place_s[row["module_path"]] += row["in_place_time_s"] or math.nan
    measured = []
    for kind in _kinds(_extracted(name)):
        layer = compared.get(f"{name}[layer={kind.paths[0]}]")
        if layer is not None and _is_measured(layer):
            measured.append((kind, layer))
    whole_j = compared[name][_WHOLE_J] if name in compared else None
    for kind, row in sorted(measured, key=lambda pair: -_all_s(*pair)):
        energy = ENERGY.of("reference").read(row)
        count = len(kind.paths)
        inside_s = math.fsum(in_place_s[path] for path in kind.paths) / count
        yield {
            "path": kind.paths[0],
            "class": kind.module_class,
            "equal": str(count),
            "in place": "-" if math.isnan(inside_s) else TIME.show(inside_s),
            "operators": TIME.show(row["operators_time_s"]) if row["operators_time_s"] else "-",
            "layer": with_interval(TIME.of("reference").read(row), TIME.show),
            "energy": with_interval(energy, ENERGY.show),
            "all of them": "-" if energy is None else ENERGY.show(count * energy.value),
            "share": f"{count * energy.value / whole_j:.0%}" if energy and whole_j else "-",
        }


def _is_measured(row: Row | None) -> bool:
    return row is not None and row[_WHOLE_S] is not None


def _all_s(kind: _Kind, row: Row) -> float:
    seconds: float = row[_WHOLE_S]
    return len(kind.paths) * seconds


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
