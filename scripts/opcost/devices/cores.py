"""Pin measurements to some processor cores, and everything else to the others.

Imports only the standard library: the workflow imports it each time Snakemake starts.
"""

import json
import os
from collections.abc import Mapping

_MEASURING = "OPCOST_MEASURING_CORES"
_ALL = "OPCOST_ALL_CORES"


def reserve(threads: Mapping[str, int]) -> None:
    """Keep this process and its children off the cores that measurements need.

    `threads` is the number of cores for each device; devices get different cores. Nothing is
    reserved if no core would be left, or if the system does not support pinning.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    free, reserved = list(cores), {}
    for device, count in sorted(threads.items()):
        free, reserved[device] = free[:-count], free[-count:]
    if not free:
        return
    os.environ[_ALL] = json.dumps(cores)
    os.environ[_MEASURING] = json.dumps(reserved)
    os.sched_setaffinity(0, free)


def reserved_for(device: str) -> list[int] | None:
    """The cores that are reserved for measurements on a device, if any."""
    cores: list[int] | None = json.loads(os.environ.get(_MEASURING, "{}")).get(device)
    return cores


def measure_here(device: str) -> None:
    """Pin this process to the cores that are reserved for a device, if any."""
    if reserved := reserved_for(device):
        os.sched_setaffinity(0, reserved)


def work_anywhere() -> None:
    """Let this process use all cores; only while no measurement runs."""
    if cores := os.environ.get(_ALL):
        os.sched_setaffinity(0, json.loads(cores))
