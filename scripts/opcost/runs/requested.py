"""Which models a run measures on which targets, and which others its tables contain.

Without `only` in the configuration, both are all models on all targets.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from opcost.errors import OpcostError
from opcost.launch_modes import EAGER
from opcost.models.definition import ModelDefinition
from opcost.results_folder import (
    DATABASE,
    MODELS,
    OPERATORS,
    RESULTS,
    executions_of,
    extraction,
    measurement,
    target_folder,
)
from opcost.study import Study


@dataclass(frozen=True)
class Requested:
    """`study` holds the models and targets of the tables.

    `measured` names the models to measure, by target; `kept` those whose earlier measurements the
    tables contain beside them.
    """

    study: Study
    measured: Mapping[str, tuple[str, ...]]
    kept: Mapping[str, tuple[str, ...]]

    def models_on(self, target: str) -> list[str]:
        """The models of the tables on a target, in the order of the study."""
        names = {*self.measured.get(target, ()), *self.kept.get(target, ())}
        return [model for model in self.study.models if model in names]

    def to_measure(self, target: str) -> Study:
        """The study of what is measured on a target."""
        models = {name: self.study.models[name] for name in self.measured.get(target, ())}
        conditions = {target: self.study.conditions[target]}
        return replace(self.study, models=models, conditions=conditions)


def requested(study: Study, results: Path = RESULTS) -> Requested:
    """What `only` requests of a study, and what of the rest is measured already."""
    if study.only is None:
        every = {target: tuple(study.models) for target in study.conditions}
        return Requested(study, every, {})
    kept = {}
    for target in study.conditions:
        others = [model for model in study.models if model not in study.only.get(target, ())]
        found = measured_already(study, target, others, 1, EAGER, results)
        operators = operators_measured(study, target, others, results)
        kept[target] = tuple(dict.fromkeys([*(path.stem for path in found), *operators]))
    both = Requested(study, {name: each for name, each in study.only.items() if each}, kept)
    on_targets = {target: both.models_on(target) for target in study.conditions}
    names = {name for models in on_targets.values() for name in models}
    if not names:
        raise OpcostError(
            "no model of this folder's study is measured: opcost run MODEL measures one"
        )
    shown = replace(
        study,
        models={name: each for name, each in study.models.items() if name in names},
        conditions={name: each for name, each in study.conditions.items() if on_targets[name]},
    )
    return replace(both, study=shown)


def measured_already(
    study: Study,
    target: str,
    models: Iterable[str],
    number: int | None = None,
    launch_mode: str = EAGER,
    results: Path = RESULTS,
) -> list[Path]:
    """The measurements of these models on a target that are of the study's models and settings, in
    one round or, by default, in all.
    """
    from opcost.databases.outdated import models_measured_otherwise  # not each start of Snakemake

    folder = target_folder(target, results)
    found = [
        path
        for model in models
        for path in (
            executions_of(folder, MODELS, model)
            if number is None
            else [measurement(folder, MODELS, model, number, launch_mode)]
        )
        if path.exists()
    ]
    definitions = {name: each.to_json() for name, each in study.models.items()}
    conditions = {target: study.conditions[target].to_json()}
    outdated = set(models_measured_otherwise(found, conditions, definitions))
    return [path for path in found if path not in outdated]


def operators_measured(
    study: Study, target: str, names: Iterable[str], results: Path = RESULTS
) -> list[str]:
    """Those of these names that are operators without a model, and were measured on a target with
    the study's settings.
    """
    from opcost.databases.outdated import operators_measured_otherwise  # as above

    folder = target_folder(target, results)
    measured = {
        name: path
        for name in names
        if study.models[name].operator is not None
        for tuple_id in _extracted(study.models[name], results)
        if (path := measurement(folder, OPERATORS, tuple_id)).exists()
    }
    conditions = {target: study.conditions[target].to_json()}
    outdated = operators_measured_otherwise(
        [*measured.values()], conditions, results / DATABASE.name
    )
    return [name for name, path in measured.items() if path not in outdated]


def _extracted(definition: ModelDefinition, results: Path) -> list[str]:
    """The tuple ids of a model whose extraction is of this definition."""
    from opcost.tuples.model_tuples import read_tuples_of

    try:
        return [*read_tuples_of(definition, extraction(definition.name, results)).by_id]
    except OpcostError:
        return []
