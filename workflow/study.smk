# Reads and checks the study each time Snakemake starts; defines what the rules ask of it.

import os
import sys
from functools import cache

from snakemake.common.configfile import load_configfile
from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod

REPOSITORY = Path(str(workflow.current_basedir)).resolve().parent
SCRIPTS = REPOSITORY / "scripts"
sys.path.insert(0, str(SCRIPTS))

from opcost.configuration import targets_named_last
from opcost.devices.device_file import read_device
from opcost.errors import OpcostError
from opcost.fingerprint import identity
from opcost.plain_yaml import read_yaml
from opcost.study import load_study
from opcost.terminal import announce, has_descriptor_files
from opcost.tuples.manifest import read_manifest, read_refused, to_benchmark

SUMMARY = Path("results/summary.txt")
SUMMARY_BEFORE = identity(SUMMARY)

# The shell of each job duplicates its standard error into the log through one of these.
if sys.platform == "linux" and not has_descriptor_files():
    raise WorkflowError(
        "jobs need /dev/fd, which is a link to /proc/self/fd, and /proc is not mounted: mount it "
        "(mount -t proc proc /proc), and run again"
    )


def checked(check, *arguments):
    """What a function of opcost returns; its errors are shown without a traceback."""
    try:
        return check(*arguments)
    except OpcostError as error:
        raise WorkflowError(str(error)) from None


DEFAULT_STUDY = Path("config/config.yaml")
try:
    if DEFAULT_STUDY.exists():
        read_yaml(DEFAULT_STUDY)  # before Snakemake follows all of its aliases
except OpcostError as error:
    raise WorkflowError(str(error)) from None


configfile: DEFAULT_STUDY


# Snakemake merges these over the default study; the last that names targets says which there are.
NAMED = [
    *map(load_configfile, workflow.config_settings.configfiles),
    workflow.config_settings.config,
]
config.update(targets_named_last(config, NAMED))

try:
    STUDY = load_study(config)
except OpcostError as error:
    raise WorkflowError(str(error)) from None

CONDITIONS = {target: each.to_json() for target, each in STUDY.conditions.items()}
DEFINITIONS = {model: each.to_json() for model, each in STUDY.models.items()}

# Shell commands find these in their environment: as part of a command's text or parameters, a
# moved repository or another Python would count as changed and measure everything again.
# Jobs run on the Python that runs Snakemake, or on that of the rule's conda environment, and on the
# package of this repository, though another one be installed there.
CONDA = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
os.environ.update(
    PYTHONPATH=os.pathsep.join(filter(None, [str(SCRIPTS), os.environ.get("PYTHONPATH")])),
    OPCOST_PYTHON="python" if CONDA else sys.executable,
    OPCOST_SCRIPTS=str(SCRIPTS),
    OPCOST_MODELS=str(STUDY.model_directory),
    OPCOST_EXTRACTION=STUDY.extraction.to_json(),
    OPCOST_RUN=str(os.getpid()),
    OPCOST_WORKERS=STUDY.workers if sys.platform == "linux" else "plain",
)


def definition(wildcards):
    """What a model is, as JSON: a change of it, and only that, extracts and measures it anew."""
    if wildcards.model not in STUDY.models:
        raise WorkflowError(f"model {wildcards.model!r} is not among `models` in the configuration")
    return DEFINITIONS[wildcards.model]


def conditions(wildcards):
    """How a target is measured, as JSON: a change of it measures anew."""
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


def operator_measurements(wildcards):
    """One file for each tuple that is benchmarked and each target."""
    checkpoints.collect.get()
    return current_operators(
        f"results/{target}/operators/{tuple_id}.parquet"
        for target in STUDY.conditions
        for tuple_id in tuples_to_measure(target)
    )


def measurements_again(wildcards):
    """Of the first tuples by id: ids are hashes, so these are any, and seldom others."""
    checkpoints.collect.get()
    return current_operators(
        f"results/{target}/again/{tuple_id}.parquet"
        for target in STUDY.conditions
        for tuple_id in sorted(tuples_to_measure(target))[: STUDY.measured_again]
    )


def devices():
    """What is known of each target's device: who deletes it has it written again."""
    return expand("results/{target}/device.json", target=STUDY.conditions)


def overheads_again(wildcards):
    """Of each target on which calls cost anything: not on a GPU, whose host runs ahead.
    Needed in any case where an older opcost began the study without it."""
    checkpoints.collect.get()
    targets = filter(calls_cost, STUDY.conditions)
    return [f"results/{target}/overhead_again.json" for target in targets]


def calls_cost(target):
    """As the target's device.json says; where somebody deleted it, as it did before."""
    device_file = Path("results", target, "device.json")
    if not device_file.exists():
        return device_file.with_name("overhead_again.json").exists()
    device = checked(read_device, device_file)
    return device.device == "cpu" and (STUDY.measured_again or not device.overhead)


@cache
def tuples_to_measure(target):
    """All that are benchmarked, or as many as `max_device_time_s` allows: what explains most."""
    if STUDY.max_device_time_s is None:
        return to_benchmark(checked(read_manifest, Path("results/operator_tuples.json")))
    chosen = plan(target)
    return [*chosen.known, *chosen.chosen]


@cache
def plan(target):
    from opcost.planning.target_plan import plan_target  # not each start of Snakemake needs it

    return plan_target(STUDY, target, Path("results"))


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


def model_measurements(wildcards):
    """One file for each target and each of these models."""
    models = extracted_models()
    return current_models(
        expand("results/{target}/models/{model}.parquet", target=STUDY.conditions, model=models)
    )


def models_again(wildcards):
    """The same once more, if anything is measured again."""
    if not STUDY.measured_again:
        return []
    models = extracted_models()
    return current_models(
        expand(
            "results/{target}/models_again/{model}.parquet", target=STUDY.conditions, model=models
        )
    )


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


def print_summary():
    """If this run has made it."""
    if SUMMARY.exists() and identity(SUMMARY) != SUMMARY_BEFORE:
        announce(f"\n{SUMMARY.read_text(encoding='utf-8')}\nMore on one page: results/report.html")
