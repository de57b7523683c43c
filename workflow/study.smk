# Read and check the study each time Snakemake starts: its models, targets, and the addresses of
# their results. Another PyTorch, device or setting has another address.

import hashlib
import sys
from dataclasses import asdict

from snakemake.common.configfile import load_configfile
from snakemake.settings.types import DeploymentMethod
from snakemake.utils import update_config

from opcost.addresses import Addresses
from opcost.configuration import from_command_line, targets_named_last
from opcost.devices.machine import installed_torch
from opcost.files import replacing
from opcost.plain_yaml import read_yaml
from opcost.results_folder import (
    RESULTS,
    all_measurements,
    device_file,
    settings_file,
    target_folder,
    target_folders,
)
from opcost.studies import Shown, ran_now
from opcost.study import load_study
from opcost.terminal import announce
from opcost.text import counted

DEFAULT_STUDY = Path("config/config.yaml")
for path in workflow.config_settings.configfiles:
    checked(read_yaml, path)  # Snakemake would take the last of repeated keys
if DEFAULT_STUDY.exists():
    checked(read_yaml, DEFAULT_STUDY)  # before Snakemake expands all of its aliases

    configfile: DEFAULT_STUDY


# Snakemake merges these into the default study; the last one that has targets determines them.
GIVEN = from_command_line(workflow.config_settings.config)
update_config(config, GIVEN)
NAMED = [*map(load_configfile, workflow.config_settings.configfiles), GIVEN]
config.update(targets_named_last(config, NAMED))

STUDY = checked(load_study, config)

# Jobs run on Snakemake's own Python, or on that of the rules' conda environment; on this machine,
# or on a cluster, which Snakemake's own machine does not know.
CONDA = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
ENVIRONMENT = Path(str(workflow.current_basedir)).parent / "envs/opcost.yaml"
ADDRESSED = {
    "software": (
        {"environment": hashlib.sha256(ENVIRONMENT.read_bytes()).hexdigest()}
        if CONDA
        else installed_torch()
    ),
    "machine": workflow.resource_settings.nodes is None and not workflow.remote_exec,
}
ADDRESSES = Addresses(STUDY, **ADDRESSED)
FOLDERS = ADDRESSES.folders
MODEL_AT = {ADDRESSES.definition(model): model for model in STUDY.models}
EXTRACTED_AT = {ADDRESSES.extraction(model).stem: model for model in STUDY.models}
SHOWN = checked(Shown.of, ADDRESSES)


def model_at(address, models):
    """The study's model at an address."""
    if address not in models:
        raise WorkflowError(
            f"{address!r} is no model of the study as it is now, whose models are at "
            f"{', '.join(models)}"
        )
    return models[address]


def conditions(wildcards, input):
    """A target's conditions as JSON. A function of `input`: other durations measure nothing again."""
    folder = FOLDERS.get(wildcards.target)
    if folder is None or folder.name != wildcards.conditions:
        raise WorkflowError(
            f"target {wildcards.target!r} is not measured under {wildcards.conditions} by the study as "
            f"it is now, but under {folder and folder.name}: its settings, PyTorch or the device differ"
        )
    return STUDY.conditions[wildcards.target].to_json()


def target_device(wildcards):
    """The device of the target, as far as known."""
    return ADDRESSES.device(wildcards.target)


def target_threads(wildcards):
    return STUDY.conditions[wildcards.target].target.threads


def complete_settings():
    """Write the settings of targets whose file was deleted: the folder's name is a digest of them."""
    for target, folder in FOLDERS.items():
        if device_file(folder).exists() and not settings_file(folder).exists():
            with replacing(settings_file(folder)) as temporary:
                temporary.write_text(f"{STUDY.conditions[target].to_json()}\n")


def announce_other_conditions():
    """Announce which targets were measured only under other conditions, with the differences."""
    for target, folder in FOLDERS.items():
        if all_measurements(folder):
            continue
        kept = []
        for other in target_folders():
            if other.parent == folder.parent and (measured := all_measurements(other)):
                differences = ", ".join(ADDRESSES.differences(target, other))
                kept.append(
                    f"{counted(len(measured), 'measurement')} of {other.name}"
                    f"{differences and f' ({differences})'}"
                )
        if kept:
            announce(f"{target}: measuring under {folder.name}; kept: {', '.join(kept)}")
