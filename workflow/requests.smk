# Which files the rules ask for, and in which order they are measured. In a restricted run (`only`),
# tables also ask for what is measured already.

from functools import cache
from itertools import chain

from opcost.devices.device_file import read_device
from opcost.devices.kinds import kind_of
from opcost.results_folder import (  # the rules use them, too
    CALLS,
    COMPARISON,
    DATABASE,
    FIGURE,
    LAUNCHES,
    MANIFEST,
    MODELS,
    MODEL_TABLE,
    MODULES,
    OPERATORS,
    REPORT,
    RESULTS,
    SERIES,
    SHARES,
    SUMMARY,
    all_series,
    device_file,
    extraction,
    key_of,
    measurement,
    measurement_in,
    note,
    overhead_file,
    recording,
    sensor_file,
    target_folder,
)
from opcost.runs.requested import measured_already
from opcost.tuples.manifest import read_manifest, read_refused, to_benchmark

EACH_TARGET = target_folder("{target}")
FOLDERS = {target: target_folder(target) for target in STUDY.conditions}
MEASURED = {target: FOLDERS[target] for target in REQUESTED.measured}


def with_kept(paths, kept):
    """Paths of this run, and those of `kept` that exist, in the order of the study: whichever run
    asks, the inputs are the same."""
    if STUDY.only is None:
        return paths
    targets, models = list(FOLDERS), list(STUDY.models)

    def order(path):
        target, name = key_of(Path(path))
        return (
            targets.index(target) if target in targets else -1,
            models.index(name) if name in models else -1,
            path,
        )

    return sorted({*paths, *(str(path) for path in kept if path.exists())}, key=order)


def operator_measurements(wildcards, series=0):
    """One file for each tuple that is benchmarked and each target."""
    checkpoints.collect.get()
    paths = current_operators(
        str(measurement(folder, OPERATORS, tuple_id, series))
        for target, folder in MEASURED.items()
        for tuple_id in (measured_again(target) if series else tuples_to_measure(target))
    )
    return with_kept(
        paths,
        (
            measurement(folder, OPERATORS, tuple_id, series)
            for folder in FOLDERS.values()
            for tuple_id in benchmarked()
        ),
    )


def measurements_again(wildcards):
    """Replicates of some of them."""
    return operator_measurements(wildcards, 1)


@cache
def measured_again(target):
    """The first tuples by id: ids are hashes, so this is a stable random choice. With a budget, those
    measured already, and as many more as it allows."""
    chosen = sorted(tuples_to_measure(target))[: STUDY.measured_again]
    if STUDY.max_device_time_s is None:
        return chosen
    done = [name for name in chosen if measurement(FOLDERS[target], OPERATORS, name, 1).exists()]
    return [*done, *[name for name in chosen if name not in done][: plan(target).again]]


def devices(wildcards):
    """The device file of each target: one that was deleted is written again."""
    paths = current_devices(str(device_file(folder)) for folder in MEASURED.values())
    return with_kept(paths, map(device_file, FOLDERS.values()))


def recorded(wildcards):
    """One file for each model and each target whose device may make other calls than extracted."""
    for target in MEASURED:
        if kind_of(STUDY.conditions[target].target.device) is None:
            checkpoints.identify_target.get(target=target)
    paths = current_recordings(
        str(recording(folder, model))
        for target, folder in MEASURED.items()
        if is_recorded(target)
        for model in REQUESTED.measured[target]
    )
    return with_kept(
        paths,
        (
            recording(FOLDERS[target], model)
            for target in FOLDERS
            for model in REQUESTED.kept.get(target, ())
        ),
    )


def is_recorded(target):
    """Not on a processor, where models run as in their extraction."""
    kind, path = kind_of(STUDY.conditions[target].target.device), device_file(FOLDERS[target])
    if kind is None and path.exists():
        kind = kind_of(checked(read_device, path).device)
    return kind is not None and not kind.is_processor


def expected_calls(wildcards):
    """The file with the calls that a model is expected to make on a target."""
    if is_recorded(wildcards.target):
        return recording(FOLDERS[wildcards.target], wildcards.model)
    return extraction(wildcards.model)


def overheads_again(wildcards):
    """The second call overhead of each target. Always needed where an older opcost began the study
    without the first."""
    checkpoints.collect.get()
    paths = current_devices(
        str(overhead_file(folder, replicate=1))
        for folder in MEASURED.values()
        if needed_again(folder)
    )
    return with_kept(paths, (overhead_file(folder, replicate=1) for folder in FOLDERS.values()))


def needed_again(folder):
    """According to the device file; if it was deleted, whether it was before."""
    path = device_file(folder)
    if not path.exists():
        return overhead_file(folder, replicate=1).exists()
    return STUDY.measured_again or not checked(read_device, path).overhead


def benchmarked():
    """All tuples that the study's models execute and that are benchmarked."""
    return to_benchmark(checked(read_manifest, MANIFEST))


@cache
def tuples_to_measure(target):
    """All benchmarked tuples, or those that explain most within `max_device_time_s`."""
    if STUDY.max_device_time_s is None and STUDY.only is None:
        return benchmarked()
    chosen = plan(target)
    return [*chosen.known, *chosen.chosen]


@cache
def plan(target):
    # not each start of Snakemake needs it
    from opcost.planning.target_plan import plan_target, planned_line

    planned = plan_target(REQUESTED.to_measure(target), target, RESULTS)
    if HAS_DISPLAY and planned.needed_s:
        announce(planned_line(target, planned))
    return planned


def operator_priority(wildcards):
    """Without a budget, the order is random, so that no drift looks like an effect of size; with
    one, tuples that explain most come first. Replicates are last."""
    if replicate(wildcards):
        return 0
    if STUDY.max_device_time_s is None:
        return 1
    return 1 + plan(wildcards.target).explained[wildcards.tuple_id]


def model_priority(wildcards):
    """With a budget, as what explains most."""
    if replicate(wildcards):
        return 0
    return 1 if STUDY.max_device_time_s is None else 2


def replicate(wildcards):
    return SERIES[wildcards.series][1]


def extracted_models():
    """The study's models that could be extracted, known once `collect` has run."""
    refused = checked(read_refused, Path(checkpoints.collect.get().output[0]))
    return [model for model in STUDY.models if model not in refused]


def model_measurements(wildcards, *series):
    """One file for each target and each of these models, of a replicate or a launch mode."""
    models = extracted_models()
    paths = current_models(
        str(measurement(folder, MODELS, model, *series))
        for target, folder in MEASURED.items()
        for model in models
        if model in REQUESTED.measured[target]
    )
    return with_kept(paths, chain.from_iterable(kept_models(target, *series) for target in FOLDERS))


@cache
def kept_models(target, *series):
    return measured_already(STUDY, target, REQUESTED.kept.get(target, ()), *series)


def models_again(wildcards):
    """The same once more, if anything is measured again."""
    return model_measurements(wildcards, 1) if STUDY.measured_again else []


def models_launched(wildcards):
    """Each in the further launch modes that the study asks for."""
    return [path for mode in STUDY.launch_modes for path in model_measurements(wildcards, 0, mode)]


def missing_measurements(wildcards):
    """New and deleted ones: an up-to-date database would not request them. Existing ones are left
    out, because Snakemake's time for a job grows with the square of its inputs."""
    measurements = [
        *devices(wildcards),
        *operator_measurements(wildcards),
        *model_measurements(wildcards),
        *models_again(wildcards),
        *models_launched(wildcards),
        *overheads_again(wildcards),
    ]
    return [path for path in measurements if not Path(path).exists()]
