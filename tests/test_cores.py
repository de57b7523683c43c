"""Measurements have cores of their own."""

import os
import subprocess
import sys

import pytest

CORES = sorted(os.sched_getaffinity(0))
FEW = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


def printed(code, **variables):
    """What Python prints that runs this code, in a process of its own."""
    code = f"import os; from opcost.devices import cores; {code}"
    environment = {"PYTHONPATH": "scripts", **variables}
    completed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return completed.stdout.strip()


SHOW = "print(sorted(os.sched_getaffinity(0)))"


@FEW
def test_what_measures_and_what_does_not_share_no_core():
    assert printed(f"cores.reserve({{'cpu': 1}}); {SHOW}") == str(CORES[:-1])
    assert printed(f"cores.reserve({{'cpu': 1}}); cores.measure_here('cpu'); {SHOW}") == str(
        CORES[-1:]
    )
    assert printed(f"cores.reserve({{'cpu': 1}}); cores.work_anywhere(); {SHOW}") == str(CORES)


@FEW
def test_a_started_process_finds_the_reserved_cores():
    start = "import os; from opcost.devices import cores; "
    for move, expected in (("", CORES[:-1]), ("cores.measure_here('cpu'); ", CORES[-1:])):
        command = f"[sys.executable, '-c', {start + move + SHOW!r}]"
        child = f"import subprocess, sys; subprocess.run({command})"
        assert printed(f"cores.reserve({{'cpu': 1}}); {child}") == str(expected)


def test_without_a_core_to_spare_nothing_is_reserved():
    assert printed(
        f"cores.reserve({{'cpu': {len(CORES)}}}); cores.measure_here('cpu'); {SHOW}"
    ) == str(CORES)


def test_without_a_reservation_nothing_moves():
    assert printed(f"cores.measure_here('cpu'); cores.work_anywhere(); {SHOW}") == str(CORES)


def test_devices_that_are_measured_side_by_side_have_different_cores():
    """On a pretended machine of eight cores."""
    pretend = (
        "os.sched_getaffinity = lambda _: set(range(8)); moves = []; "
        "os.sched_setaffinity = lambda _, to: moves.append(sorted(to)); "
    )
    reserve = "cores.reserve({'cuda:0': 1, 'cuda:1': 2}); "
    measure = "cores.measure_here('cuda:0'); cores.measure_here('cuda:1'); print(moves)"
    assert printed(pretend + reserve + measure) == "[[0, 1, 2, 3, 4], [7], [5, 6]]"
