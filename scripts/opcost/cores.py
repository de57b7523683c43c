"""Which processor cores measure; Snakemake and all else keep to the others.

Standard library alone: the workflow imports it each time that Snakemake starts.
"""

import os

_MEASURING = "OPCOST_MEASURING_CORES"
_ALL = "OPCOST_ALL_CORES"


def reserve(threads: int) -> None:
    """Keep this process, and all that it starts, off as many of its cores as measurements need.

    Nothing is reserved where no core would be left, or where the system cannot pin.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) <= threads:
        return
    os.environ[_ALL] = _written(cores)
    os.environ[_MEASURING] = _written(cores[-threads:])
    os.sched_setaffinity(0, cores[:-threads])


def measure_here() -> None:
    """Move this process to the cores that are reserved for measurements, if any are."""
    _move(_MEASURING)


def work_anywhere() -> None:
    """Let this process, which no measurement runs beside, use all cores again."""
    _move(_ALL)


def _move(variable: str) -> None:
    if cores := os.environ.get(variable):
        os.sched_setaffinity(0, map(int, cores.split(",")))


def _written(cores: list[int]) -> str:
    return ",".join(map(str, cores))
