# Which jobs run at the same time. On one machine: one measurement per device, several GPUs in
# parallel; nothing else runs beside a measurement of the processor. On a cluster: the resources
# that each target requests.

import math

from opcost.devices.kinds import kind_of
from opcost.devices.lock import reserve
from opcost.devices.machine import keep_driver_loaded

THREADS = {
    ADDRESSES.device(target): max(
        each.target.threads
        for other, each in STUDY.conditions.items()
        if ADDRESSES.device(other) == ADDRESSES.device(target)
    )
    for target in STUDY.conditions
}
GPUS = sorted(name for name in THREADS if (kind := kind_of(name)) and not kind.is_processor)

CORES = workflow.resource_settings.cores or 1

# `--jobs`, which a cluster requires, is Snakemake's number of nodes.
if workflow.is_main_process and workflow.resource_settings.nodes is None:
    workflow.global_resources["processor"] = CORES
    for gpu in GPUS:
        workflow.global_resources[gpu.replace(":", "_")] = 1
    reserve(THREADS)
    if GPUS and not workflow.dryrun:
        keep_driver_loaded()


def share_of_processor(wildcards):
    """The whole processor if it is measured, as perhaps with `auto`."""
    return 1 if target_device(wildcards) in GPUS else CORES


def taken(gpu):
    return lambda wildcards: int(target_device(wildcards) == gpu)


def requested(name):
    """A resource that the target requests of a cluster, as a function of the wildcards, or None."""
    return lambda wildcards: getattr(STUDY.cluster_requests[wildcards.target], name)


def requested_gpus(wildcards):
    kind = kind_of(target_device(wildcards))  # None: `auto`, which prefers a GPU
    wants_one = requested("gpu_model")(wildcards) or kind is None or not kind.is_processor
    return 1 if wants_one else None


def requested_extras(wildcards):
    return "--exclusive" if requested("exclusive")(wildcards) else None


# The resources of a measuring job: shares of the processor and GPUs on one machine, the others on a
# cluster.
MEASURING = {
    "processor": share_of_processor,
    **{gpu.replace(":", "_"): taken(gpu) for gpu in GPUS},
    "measurement": 1,
    "gpu": requested_gpus,
    "gpu_model": requested("gpu_model"),
    "slurm_partition": requested("partition"),
    "constraint": requested("constraint"),
    "slurm_extra": requested_extras,
}


def longest_minutes(wildcards):
    """The timeout of a measurement, with its start-up."""
    return 2 + math.ceil(STUDY.conditions[wildcards.target].measurement.timeout_s / 60)
