# Reads and checks the study each time Snakemake starts: what each model is, and how each target is
# measured. A run may be restricted to some models on some targets (`only`).

from dataclasses import asdict

from snakemake.common.configfile import load_configfile
from snakemake.utils import update_config

from opcost.configuration import from_command_line, targets_named_last
from opcost.plain_yaml import read_yaml
from opcost.runs.requested import requested
from opcost.study import load_study

DEFAULT_STUDY = Path("config/config.yaml")
for path in workflow.config_settings.configfiles:
    checked(read_yaml, path)  # of a key that stands twice, Snakemake takes the last
if DEFAULT_STUDY.exists():
    checked(read_yaml, DEFAULT_STUDY)  # before Snakemake follows all of its aliases

    configfile: DEFAULT_STUDY


# Snakemake merges these over the default study; the last that names targets says which there are.
GIVEN = from_command_line(workflow.config_settings.config)
update_config(config, GIVEN)
NAMED = [*map(load_configfile, workflow.config_settings.configfiles), GIVEN]
config.update(targets_named_last(config, NAMED))

REQUESTED = checked(requested, checked(load_study, config))
STUDY = REQUESTED.study
CONDITIONS = {target: each.to_json() for target, each in STUDY.conditions.items()}
SETTINGS = {target: each.target.to_json() for target, each in STUDY.conditions.items()}
MODELS_ON = {target: REQUESTED.models_on(target) for target in STUDY.conditions}
WHOLES = {*STUDY.wholes}
GENERATIONS = [asdict(each) for each in STUDY.generations]
SWEEPS_OF_STUDY = [asdict(each) for each in STUDY.sweeps]
TARGET_SWEEPS = [asdict(each) for each in STUDY.target_sweeps]
DEFINITIONS = {model: each.to_json() for model, each in STUDY.models.items()}


def definition(wildcards):
    """A model's definition as JSON: only a change of it extracts and measures the model again."""
    if wildcards.model not in STUDY.models:
        raise WorkflowError(f"model {wildcards.model!r} is not among `models` in the configuration")
    return DEFINITIONS[wildcards.model]


def conditions(wildcards):
    """A target's conditions as JSON: a change of them measures again."""
    if wildcards.target not in CONDITIONS:
        raise WorkflowError(
            f"target {wildcards.target!r} is not among `targets` in the configuration"
        )
    return CONDITIONS[wildcards.target]


def target_device(wildcards):
    """The device as the target names it."""
    conditions(wildcards)
    return STUDY.conditions[wildcards.target].target.device


def target_threads(wildcards):
    return STUDY.conditions[wildcards.target].target.threads
