"""Models that were measured and are in no table any more, as a run and its summary name them."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from opcost.launch_modes import EAGER
from opcost.models.definition import ModelDefinition
from opcost.results_folder import MODELS, RESULTS, measurement, target_folder
from opcost.rows import records, schemas
from opcost.runs.requested import measured_already
from opcost.study import Study
from opcost.text import wrapped


def left_out(study: Study, results: Path = RESULTS) -> list[str]:
    """Lines that name the models that were measured on a target and are in no table, because
    something has changed since, and how to measure them; none if there are none.
    """
    models: dict[str, list[str]] = defaultdict(list)
    for name, change in _outdated(study, results).items():
        models[change].append(name)
    if not models:
        return []
    names = dict.fromkeys(name.partition("[")[0] for each in models.values() for name in each)
    return [
        "Left out of tables and report, because of a change since they were measured:",
        *wrapped([f"{change}: {', '.join(each)}" for change, each in models.items()], "  "),
        *wrapped(
            [
                "To measure whole models again, and operators only if they are new: opcost run "
                f"{' '.join(names)}"
            ]
        ),
    ]


def _outdated(study: Study, results: Path) -> dict[str, str]:
    """What has changed of each model that was measured, and that this run does not measure."""
    if study.only is None:
        return {}
    found: dict[str, str] = {}
    for target in study.conditions:
        folder = target_folder(target, results)
        others = [name for name in study.models if name not in study.only.get(target, ())]
        paths = [measurement(folder, MODELS, name) for name in others]
        valid = measured_already(study, target, others, 1, EAGER, results)
        for path in paths:
            if path.exists() and path not in valid:
                found.setdefault(path.stem, _change(path, study.models[path.stem], target))
    return found


def _change(path: Path, present: ModelDefinition, target: str) -> str:
    """What differs from a measurement that is not current any more."""
    [text] = records.read(path, schemas.MODEL, ["definition_json"])["definition_json"].to_pylist()
    if text == present.to_json():
        return f"settings of target {target}"
    measured = ModelDefinition.from_json(text) if text else None
    if measured is None or replace(measured, source_digest=present.source_digest) != present:
        return "config"
    loss = present.training and present.training.loss
    sources = [each for each in (present.factory, loss) if each and ":" in each]
    return f"code of {' or '.join(sources or [str(present.model)])}"
