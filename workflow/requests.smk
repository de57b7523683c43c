# Which files the rules ask for, and in which order they are measured.

from functools import cache

from opcost.devices.device_file import read_device
from opcost.results_folder import *
from opcost.tuples.manifest import read_manifest, read_refused, to_benchmark

EACH_TARGET = target_folder("{target}")
FOLDERS = {target: target_folder(target) for target in STUDY.conditions}


def operator_measurements(wildcards):
    """One file for each tuple that is benchmarked and each target."""
    checkpoints.collect.get()
    return current_operators(
        str(measurement(folder, OPERATORS, tuple_id))
        for target, folder in FOLDERS.items()
        for tuple_id in tuples_to_measure(target)
    )


def measurements_again(wildcards):
    """Of the first tuples by id: ids are hashes, so these are any, and seldom others."""
    checkpoints.collect.get()
    return current_operators(
        str(measurement(folder, OPERATORS, tuple_id, replicate=1))
        for target, folder in FOLDERS.items()
        for tuple_id in sorted(tuples_to_measure(target))[: STUDY.measured_again]
    )


def devices():
    """What is known of each target's device: who deletes it has it written again."""
    return [str(device_file(folder)) for folder in FOLDERS.values()]


def overheads_again(wildcards):
    """Of each target on which calls cost anything: not on a GPU, whose host runs ahead.
    Needed in any case where an older opcost began the study without it."""
    checkpoints.collect.get()
    return [
        str(overhead_file(folder, replicate=1)) for folder in FOLDERS.values() if calls_cost(folder)
    ]


def calls_cost(folder):
    """As the target's device file says; where somebody deleted it, as it did before."""
    path = device_file(folder)
    if not path.exists():
        return overhead_file(folder, replicate=1).exists()
    device = checked(read_device, path)
    return device.device == "cpu" and (STUDY.measured_again or not device.overhead)


def benchmarked():
    """All tuples that the study's models execute and that are benchmarked."""
    return to_benchmark(checked(read_manifest, MANIFEST))


@cache
def tuples_to_measure(target):
    """All that are benchmarked, or as many as `max_device_time_s` allows: what explains most."""
    if STUDY.max_device_time_s is None:
        return benchmarked()
    chosen = plan(target)
    return [*chosen.known, *chosen.chosen]


@cache
def plan(target):
    from opcost.planning.target_plan import plan_target  # not each start of Snakemake needs it

    return plan_target(STUDY, target, RESULTS)


def importance(wildcards):
    """With time for all, measurements come in any order, so that no drift looks like an effect of
    size; with less, those first that explain most."""
    if STUDY.max_device_time_s is None:
        return 1
    return 1 + plan(wildcards.target).explained[wildcards.tuple_id]


def extracted_models():
    """Those of the study that could be extracted; known once all were."""
    refused = checked(read_refused, Path(checkpoints.collect.get().output[0]))
    return [model for model in STUDY.models if model not in refused]


def model_measurements(wildcards, replicate=0):
    """One file for each target and each of these models."""
    models = extracted_models()
    return current_models(
        str(measurement(folder, MODELS, model, replicate))
        for folder in FOLDERS.values()
        for model in models
    )


def models_again(wildcards):
    """The same once more, if anything is measured again."""
    return model_measurements(wildcards, replicate=1) if STUDY.measured_again else []


def missing_measurements(wildcards):
    """New ones, and those that somebody deleted: an up-to-date database would not ask for them.
    Those that exist are left out, as Snakemake's time for a job grows with its inputs' square."""
    measurements = [
        *devices(),
        *operator_measurements(wildcards),
        *model_measurements(wildcards),
        *models_again(wildcards),
        *overheads_again(wildcards),
    ]
    return [path for path in measurements if not Path(path).exists()]
