# Which files the rules ask for, and in which order they are measured. In a restricted run (`only`),
# tables also ask for what is measured already.

from functools import cache
from itertools import chain

from snakemake.exceptions import IncompleteCheckpointException

from opcost.devices.device_file import read_device
from opcost.devices.kinds import kind_of
from opcost.results_folder import (  # the rules use them, too
    CALLS,
    COMPARISON,
    DATABASE,
    FIGURE,
    IN_PLACE,
    LAUNCHES,
    MANIFEST,
    MODELS,
    MODEL_TABLE,
    MODULES,
    OPERATORS,
    REPORT,
    REQUESTS,
    RESULTS,
    SHARES,
    SUMMARY,
    SWEEPS,
    Series,
    all_series,
    device_file,
    executions_of,
    extraction,
    key_of,
    measurement,
    measurement_in,
    note,
    overhead_file,
    overhead_files,
    recording,
    round_plan,
    series_named,
    sensor_file,
    target_folder,
)
from opcost.planning.target_rounds import read_round
from opcost.runs.requested import measured_already
from opcost.tuples.manifest import read_manifest, read_refused, to_benchmark

EACH_TARGET = target_folder("{target}")
FOLDERS = {target: target_folder(target) for target in STUDY.conditions}
MEASURED = {target: FOLDERS[target] for target in REQUESTED.measured}


def with_kept(paths, kept):
    """Paths of this run, and those of `kept` if models that it does not measure are shown, too."""
    return paths if STUDY.only is None else in_order(paths, kept)


def in_order(paths, kept):
    """Paths of this run, and those of `kept` that exist, in the order of the study: whichever run
    asks, the inputs are the same."""
    targets, models = list(FOLDERS), list(STUDY.models)

    def order(path):
        target, name = key_of(Path(path))
        return (
            targets.index(target) if target in targets else -1,
            models.index(name) if name in models else -1,
            path,
        )

    return sorted({*paths, *(str(path) for path in kept if path.exists())}, key=order)


def planned(target, number):
    """What is measured in a round from 2 on. Raises IncompleteCheckpointException until the rounds
    before it have been measured."""
    path = checkpoints.plan_round.get(target=target, round=number).output.plan
    return checked(read_round, Path(path))


def names_in_round(target, number):
    """The tuples and models of a round that is planned, by kind."""
    if number == 1:
        return {OPERATORS: tuples_to_measure(target), MODELS: models_to_measure(target)}
    found = planned(target, number)
    current = {OPERATORS: known_tuples(), MODELS: models_to_measure(target)}
    return {
        kind: [name for name in names if name in current[kind]]
        for kind, names in ((OPERATORS, found.operators), (MODELS, found.models))
    }


@cache
def known_tuples():
    return frozenset(benchmarked())


def rounds_of(target):
    """The rounds of a target so far, and the plan that must be made first, if any. It becomes an
    input: if the exception were raised, this target would keep all others from being measured."""
    numbers = [1]
    for number in range(2, STUDY.rounds + 1):
        try:
            if not planned(target, number):
                break
        except IncompleteCheckpointException as error:
            make_missing("database", [error.targetfile])
            return numbers, [error.targetfile]
        numbers.append(number)
    return numbers, []


def in_rounds(kind, target):
    """The files of a kind of measurements on a target in all rounds, and plans to wait for."""
    checkpoints.collect.get()
    numbers, plans = rounds_of(target)
    paths = (
        str(measurement(FOLDERS[target], kind, name, number))
        for number in numbers
        for name in names_in_round(target, number)[kind]
    )
    return [*paths], plans


def operator_measurements(wildcards):
    """One file for each round, target, and tuple that is benchmarked in it."""
    found = [in_rounds(OPERATORS, target) for target in MEASURED]
    paths = current_operators(chain.from_iterable(paths for paths, _ in found))
    kept = (
        path
        for folder in FOLDERS.values()
        for tuple_id in benchmarked()
        for path in executions_of(folder, OPERATORS, tuple_id)
    )
    return [*with_kept(paths, kept), *chain.from_iterable(plans for _, plans in found)]


def measured_before(wildcards):
    """What the plan of a round is made from: all measurements of the one before it."""
    checkpoints.collect.get()
    target, number = wildcards.target, int(wildcards.round) - 1
    overhead = [str(overhead_file(FOLDERS[target], number))] if number > 1 else []
    return [
        *current_devices(overhead),
        *current_operators(
            str(measurement(FOLDERS[target], OPERATORS, name, number))
            for name in names_in_round(target, number)[OPERATORS]
        ),
        *current_models(
            str(measurement(FOLDERS[target], MODELS, name, number))
            for name in names_in_round(target, number)[MODELS]
        ),
    ]


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
        if model in WHOLES
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


def overheads(wildcards):
    """The call overhead of each target in each round after the first."""
    checkpoints.collect.get()
    paths, plans = [], []
    for target, folder in MEASURED.items():
        numbers, to_make = rounds_of(target)
        paths += [str(overhead_file(folder, number)) for number in numbers[1:]]
        plans += to_make
    kept = (path for folder in FOLDERS.values() for path in overhead_files(folder)[1:])
    return [*with_kept(current_devices(paths), kept), *plans]


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


MOST_OF_A_TARGET = 2


def operator_priority(wildcards):
    """Without a budget, the order is random, so that no drift looks like an effect of size; with
    one, tuples that explain most come first."""
    first = priority_of_point(wildcards.target)
    if STUDY.max_device_time_s is None or series_named(wildcards.series).round > 1:
        return first + 1
    return first + 1 + plan(wildcards.target).explained[wildcards.tuple_id]


def model_priority(wildcards):
    """With a budget, as what explains most."""
    first = priority_of_point(wildcards.target)
    return first + (1 if STUDY.max_device_time_s is None else MOST_OF_A_TARGET)


def priority_of_point(target):
    """Points of one GPU are visited one after the other: each switch takes time, and heat. Targets
    without operating points are measured in turns."""
    device = STUDY.conditions[target].target.device
    beside = [
        name
        for name, each in STUDY.conditions.items()
        if each.target.device == device and name in MEASURED
    ]
    if not any(STUDY.conditions[name].target.operating_point for name in beside):
        return 0
    return MOST_OF_A_TARGET * beside[::-1].index(target)


def extracted_models():
    """The study's models that could be extracted, known once `collect` has run."""
    refused = checked(read_refused, Path(checkpoints.collect.get().output[0]))
    return [model for model in STUDY.models if model not in refused]


def models_to_measure(target):
    """The models of this run that could be extracted and are measured as a whole."""
    measured = WHOLES.intersection(REQUESTED.measured[target])
    return [model for model in extracted_models() if model in measured]


def model_measurements(wildcards):
    """One file for each round, target, and model that is measured in it."""
    found = [in_rounds(MODELS, target) for target in MEASURED]
    paths = current_models(chain.from_iterable(paths for paths, _ in found))
    # All rounds count, as for operators, although the study may now have fewer.
    measured = (measured_already(STUDY, target, models_to_measure(target)) for target in MEASURED)
    kept = chain(*map(kept_models, FOLDERS), *measured)
    return [*in_order(paths, kept), *chain.from_iterable(plans for _, plans in found)]


def models_launched(wildcards):
    """One file for each target, each model, and each further launch mode of the study."""
    paths = current_models(
        str(measurement(folder, MODELS, model, 1, mode))
        for mode in STUDY.launch_modes
        for target, folder in MEASURED.items()
        for model in models_to_measure(target)
    )
    kept = (
        path
        for mode in STUDY.launch_modes
        for target in FOLDERS
        for path in kept_models(target, 1, mode)
    )
    return with_kept(paths, kept)


@cache
def kept_models(target, *series):
    return measured_already(STUDY, target, REQUESTED.kept.get(target, ()), *series)


def missing_measurements(wildcards):
    """New and deleted ones: an up-to-date database would not request them. Existing ones are left
    out, because Snakemake's time for a job grows with the square of its inputs."""
    measurements = [
        *devices(wildcards),
        *operator_measurements(wildcards),
        *model_measurements(wildcards),
        *models_launched(wildcards),
        *overheads(wildcards),
    ]
    return [path for path in measurements if not Path(path).exists()]
