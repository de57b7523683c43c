# The files that the rules request, and their order.

import time
from functools import cache
from itertools import chain

from snakemake.exceptions import IncompleteCheckpointException

from opcost.devices.kinds import kind_of
from opcost.databases.measured import find_measured
from opcost.models.source import sources_of
from opcost.results_folder import (  # also for the rules
    CALLS,
    ANSWERS,
    COMPARISON,
    DATABASE,
    DETAILS,
    FIGURE,
    IN_CONTEXT,
    LAUNCHES,
    MODELS,
    MODEL_TABLE,
    MODULES,
    OPERATORS,
    REPORT,
    ROUNDS,
    REQUESTS,
    SHARES,
    SUMMARY,
    SWEEPS,
    all_series,
    device_file,
    extraction,
    folder_of,
    measurement,
    measurement_in,
    overhead_file,
    recording,
    round_plan,
    series_named,
    sensor_file,
)
from opcost.planning.rounds import read_round
from opcost.tuples.manifest import read_manifest, read_refused, to_benchmark

BEGAN_S = time.time()
EACH = target_folder("{target}", "{conditions}")
MANIFEST = ADDRESSES.manifest

if workflow.is_main_process and MANIFEST.exists():
    checked(read_manifest, MANIFEST)  # an input function would show an error with its frames


def model_sources(wildcards):
    """The config of a model and its code, listed in a summary; an extraction depends only on their
    digest. A path with braces, which would be wildcards, is left out.
    """
    model = model_at(wildcards.model, EXTRACTED_AT)
    configs = [name for name, each in STUDY.configs.items() if model in each.models]
    sources = sources_of(STUDY.models[model], [*configs, model][0], STUDY.model_directory)
    return [path for path in map(str, sources) if not {*"{}"} & {*path}]


def wait_for_manifest():
    """Raise IncompleteCheckpointException until the manifest and its inputs, which plans read,
    exist. An existing one is this study's, because of its path.
    """
    if not MANIFEST.exists() or missing_extractions(None):
        checkpoints.collect.get()


def planned(target, number):
    """The plan of a round from 2 on. Raises IncompleteCheckpointException until the previous rounds
    have been measured."""
    conditions = FOLDERS[target].name
    plan_of_round = checkpoints.plan_round.get(target=target, conditions=conditions, round=number)
    return checked(read_round, Path(plan_of_round.output[0]))


def names_in_round(target, number):
    """The names of the files of tuples and models in a planned round, by kind."""
    if number == 1:
        return {OPERATORS: tuples_to_measure(target), MODELS: models_to_measure()}
    found, known = planned(target, number), known_tuples()
    measured = {*models_to_measure()}
    named = (ADDRESSES.definition(model) for model in found.models if model in STUDY.models)
    return {
        OPERATORS: [name for name in found.operators if name in known],
        MODELS: [name for name in named if name in measured],
    }


@cache
def known_tuples():
    return frozenset(benchmarked())


def rounds_of(target):
    """The rounds of a target so far, and the plan that must be made first, if any. The plan becomes
    an input, because raising the exception would block the measurements of all other targets.
    """
    numbers = [1]
    for number in range(2, STUDY.rounds + 1):
        try:
            if not planned(target, number):
                break
        except IncompleteCheckpointException as error:
            return numbers, [error.targetfile]
        numbers.append(number)
    return numbers, []


def in_rounds(kind):
    """The files of a kind of measurements in all rounds, and plans to wait for."""
    wait_for_manifest()
    found = []
    for target, folder in FOLDERS.items():
        numbers, plans = rounds_of(target)
        found += (
            str(measurement(folder, kind, name, number))
            for number in numbers
            for name in names_in_round(target, number)[kind]
        )
        found += plans
    return found


def operator_measurements(wildcards):
    """One file for each round, target, and tuple of the round."""
    return in_rounds(OPERATORS)


def model_measurements(wildcards):
    """One file for each round, target, and model of the round."""
    return in_rounds(MODELS)


def models_launched(wildcards):
    """One file for each target, model, and further launch mode of the study."""
    wait_for_manifest()
    return [
        str(measurement(folder, MODELS, name, 1, mode))
        for mode in STUDY.launch_modes
        for folder in FOLDERS.values()
        for name in models_to_measure()
    ]


def overheads(wildcards):
    """The call overhead of each target in each round after the first."""
    wait_for_manifest()
    found = []
    for target, folder in FOLDERS.items():
        numbers, plans = rounds_of(target)
        found += [str(overhead_file(folder, number)) for number in numbers[1:]] + plans
    return found


def measured_before(wildcards):
    """The inputs of the plan of a round: all measurements of the previous one."""
    wait_for_manifest()
    target, number = wildcards.target, int(wildcards.round) - 1
    folder = FOLDERS[target]
    return [
        *([str(overhead_file(folder, number))] if number > 1 else []),
        *(
            str(measurement(folder, kind, name, number))
            for kind, names in names_in_round(target, number).items()
            for name in names
        ),
    ]


def devices(wildcards):
    """The device file of each target that has something to measure."""
    return [str(device_file(folder)) for folder in FOLDERS.values() if STUDY.models]


def sensors(wildcards):
    """The sensor file of each target that has something to measure."""
    return [str(sensor_file(folder)) for folder in FOLDERS.values() if STUDY.models]


def extracted(wildcards):
    """One file for each model."""
    return [str(ADDRESSES.extraction(model)) for model in STUDY.models]


def traced(wildcards):
    """One file for each model and each target whose device may make other calls than extracted."""
    return [
        str(ADDRESSES.recording(target, model))
        for target in FOLDERS
        if ADDRESSES.is_recorded(target)
        for model in STUDY.end_to_end
    ]


def missing_extractions(wildcards):
    """Deleted extractions: an up-to-date manifest would not request them."""
    paths = [*extracted(wildcards), *traced(wildcards)]
    return [path for path in paths if not Path(path).exists()]


def expected_calls(wildcards):
    """The file with the calls that a model is expected to make on a target."""
    return str(ADDRESSES.expected_calls(wildcards.target, model_at(wildcards.model, MODEL_AT)))


def benchmarked():
    """All tuples of the study's models that are benchmarked."""
    return to_benchmark(checked(read_manifest, MANIFEST))


@cache
def tuples_to_measure(target):
    """All benchmarked tuples, or the most important ones within `max_device_time_s`."""
    if STUDY.max_device_time_s is None and not HAS_DISPLAY:
        return benchmarked()
    chosen = plan(target)
    return [*chosen.known, *chosen.chosen]


@cache
def plan(target):
    # Imported late: not every start of Snakemake needs it.
    from opcost.planning.target_plan import plan_target, planned_line

    found = checked(plan_target, ADDRESSES, target)
    if HAS_DISPLAY and found.needed_s:
        announce(planned_line(target, found))
    return found


MOST_OF_A_TARGET = 2


def operator_priority(wildcards):
    """Without a budget, the order is random, so that drift does not look like an effect of size;
    with one, the most important tuples come first.
    """
    first = priority_of_point(wildcards.target)
    if STUDY.max_device_time_s is None or series_named(wildcards.series).round > 1:
        return first + 1
    return first + 1 + plan(wildcards.target).explained.get(wildcards.tuple_id, 0)


def model_priority(wildcards):
    """With a budget, models come before tuples."""
    first = priority_of_point(wildcards.target)
    return first + (1 if STUDY.max_device_time_s is None else MOST_OF_A_TARGET)


def priority_of_point(target):
    """Operating points of one GPU are visited one after the other, because each switch takes time
    and changes the temperature. Targets without operating points alternate.
    """
    device = STUDY.conditions[target].target.device
    beside = [name for name, each in STUDY.conditions.items() if each.target.device == device]
    if not any(STUDY.conditions[name].target.operating_point for name in beside):
        return 0
    return MOST_OF_A_TARGET * beside[::-1].index(target)


@cache
def models_to_measure():
    """The names of the files of models that were extracted and are measured end to end."""
    wait_for_manifest()
    refused = checked(read_refused, MANIFEST)
    return [ADDRESSES.definition(model) for model in STUDY.end_to_end if model not in refused]


def anew_if_cut(wildcards):
    """When a round that the budget cut must be planned again: in the next run, with a new budget."""
    path = round_plan(FOLDERS[wildcards.target], ADDRESSES.name, wildcards.round)
    if not path.exists():
        return 0.0
    found = checked(read_round, path)
    return BEGAN_S if found.is_cut else found.anew


def measured_beside(wildcards):
    """A digest of other studies' measurements. They are not inputs, because this study would then
    make them.
    """
    own, folders = {*(benchmarked() if MANIFEST.exists() else ()), *MODEL_AT}, {*FOLDERS.values()}
    files = [
        (str(path), *version_of(path)[:2])
        for path in find_measured(RESULTS).files
        if path.parent not in folders and not (folder_of(path) in folders and path.stem in own)
    ]
    return hashlib.sha256(repr(sorted(files)).encode()).hexdigest()


def missing_measurements(wildcards):
    """New and deleted measurements, and plans to wait for: an up-to-date database would not request
    them. Existing ones are left out, because Snakemake's time for a job grows with the square of
    its inputs.
    """
    measurements = [
        *devices(wildcards),
        *sensors(wildcards),
        *operator_measurements(wildcards),
        *model_measurements(wildcards),
        *models_launched(wildcards),
        *overheads(wildcards),
    ]
    return [
        path for path in measurements if not Path(path).exists() or Path(path).parent.name == ROUNDS
    ]
