"""Which processor cores measure; Snakemake and all else keep to the others.

Standard library alone: the workflow imports it each time that Snakemake starts.
"""

import json
import os
from collections.abc import Mapping

_MEASURING = "OPCOST_MEASURING_CORES"
_ALL = "OPCOST_ALL_CORES"


def reserve(threads: Mapping[str, int]) -> None:
    """Keep this process, and all that it starts, off the cores that measurements need.

    `threads` says how many cores the measurements of each device need; those of different devices
    get different ones. Nothing is reserved where no core would be left, or where the system cannot
    pin.
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


def measure_here(device: str) -> None:
    """Move this process to the cores that are reserved for measuring a device, if any are."""
    if reserved := os.environ.get(_MEASURING):
        os.sched_setaffinity(0, json.loads(reserved).get(device, os.sched_getaffinity(0)))


def work_anywhere() -> None:
    """Let this process, which no measurement runs beside, use all cores again."""
    if cores := os.environ.get(_ALL):
        os.sched_setaffinity(0, json.loads(cores))
