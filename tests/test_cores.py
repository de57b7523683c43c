"""Measurements have cores of their own."""

import os
import subprocess
import sys

import pytest

CORES = sorted(os.sched_getaffinity(0))
FEW = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


def printed(code, **variables):
    """What Python prints that runs this code, in a process of its own."""
    code = f"import os; from opcost import cores; {code}"
    environment = {"PYTHONPATH": "scripts", **variables}
    completed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return completed.stdout.strip()


SHOW = "print(sorted(os.sched_getaffinity(0)))"


@FEW
def test_what_measures_and_what_does_not_share_no_core():
    assert printed(f"cores.reserve(1); {SHOW}") == str(CORES[:-1])
    assert printed(f"cores.reserve(1); cores.measure_here(); {SHOW}") == str(CORES[-1:])
    assert printed(f"cores.reserve(1); cores.work_anywhere(); {SHOW}") == str(CORES)


@FEW
def test_a_started_process_finds_the_reserved_cores():
    start = "import os; from opcost import cores; "
    for move, expected in (("", CORES[:-1]), ("cores.measure_here(); ", CORES[-1:])):
        command = f"[sys.executable, '-c', {start + move + SHOW!r}]"
        child = f"import subprocess, sys; subprocess.run({command})"
        assert printed(f"cores.reserve(1); {child}") == str(expected)


def test_without_a_core_to_spare_nothing_is_reserved():
    assert printed(f"cores.reserve({len(CORES)}); cores.measure_here(); {SHOW}") == str(CORES)


def test_without_a_reservation_nothing_moves():
    assert printed(f"cores.measure_here(); cores.work_anywhere(); {SHOW}") == str(CORES)
