"""Which processor time and memory are those of a program, whatever becomes of its processes."""

import os
import subprocess
import sys

import numpy as np
import pytest
from opcost.power.attribution import MEMORY, PROCESSOR_TIME, User, share
from opcost.power.recording import SAMPLE

BUSY_S = 0.4
PROCESSES = """
import os, sys, time

def burn():
    end_s = time.process_time() + {busy_s}
    while time.process_time() < end_s:
        pass

def child(*then):
    number = os.fork()
    if number == 0:
        for do in then:
            do()
        os._exit(0)
    return number

def say(what):
    print(what, flush=True)
    sys.stdin.readline()

sys.stdin.readline()
"""
WAITED_FOR = """
number = child(burn, lambda: print("burnt", flush=True), lambda: time.sleep(60))
sys.stdin.readline()
os.kill(number, 9)
os.waitpid(number, 0)
say("waited for")
burn()
say("burnt again")
"""
REPARENTED = """
def launch():
    child(lambda: print(os.getpid(), flush=True), burn, work)

def work():
    print("burnt", flush=True)
    time.sleep(60)

launcher = child(launch, lambda: time.sleep(60))
sys.stdin.readline()
os.kill(launcher, 9)
os.waitpid(launcher, 0)
say("left alone")
burn()
say("burnt again")
"""


@pytest.fixture
def running():
    """Runs a program, which waits for a line at first, and whenever it has said something."""
    started = []

    def start(program):
        command = [sys.executable, "-c", (PROCESSES + program).format(busy_s=BUSY_S)]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, **streams))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def go_on(process):
    process.stdin.write("\n")
    process.stdin.flush()


def used_s(user, before_s):
    return user.processor_time_s()[0] - before_s


def test_the_time_of_a_child_is_counted_once_when_its_end_is_asked_for(running):
    process = running(WAITED_FOR)
    user = User(process.pid, without=0)
    before_s = user.processor_time_s()[0]
    for said, busy_s in (("burnt", BUSY_S), ("waited for", BUSY_S), ("burnt again", 2 * BUSY_S)):
        go_on(process)
        assert process.stdout.readline().strip() == said
        assert used_s(user, before_s) == pytest.approx(busy_s, abs=0.15)


def test_the_time_of_a_child_that_was_never_seen_is_counted(running):
    process = running("os.waitpid(child(burn), 0)\nsay('burnt')")
    user = User(process.pid, without=0)
    before_s = user.processor_time_s()[0]
    go_on(process)
    process.stdout.readline()
    assert used_s(user, before_s) == pytest.approx(BUSY_S, abs=0.15)


def test_a_descendant_that_has_another_parent_by_now_stays_one(running):
    process = running(REPARENTED)
    user = User(process.pid, without=0)
    before_s = user.processor_time_s()[0]
    go_on(process)
    worker = int(process.stdout.readline())
    assert process.stdout.readline().strip() == "burnt"
    assert used_s(user, before_s) == pytest.approx(BUSY_S, abs=0.15)
    go_on(process)
    assert process.stdout.readline().strip() == "left alone"
    assert used_s(user, before_s) == pytest.approx(BUSY_S, abs=0.15)
    assert user.memory_bytes({worker: 30, -1: 10}) == (30, 40)
    os.kill(worker, 9)
    go_on(process)
    assert process.stdout.readline().strip() == "burnt again"
    assert used_s(user, before_s) == pytest.approx(2 * BUSY_S, abs=0.15)


def test_the_own_sampler_is_no_part_of_a_program():
    own = os.getpid()
    assert User(own, without=own).memory_bytes({own: 30}) == (0, 30)


def test_the_process_that_only_runs_a_program_has_no_part_in_its_memory(running):
    process = running("")
    assert np.isnan(User(process.pid, without=0, only_children=True).resident_bytes())
    least = User(process.pid, without=0).resident_bytes()  # it grows while it starts
    own = os.getpid()  # whose other children are those of other tests
    held = User(own, without=0, only_children=True).resident_bytes()
    assert least <= held < User(own, without=0).resident_bytes()


def test_a_share_is_of_the_time_of_a_window_or_of_the_memory_in_it():
    samples = np.zeros(5, SAMPLE)
    samples["time_s"] = np.arange(5)
    samples["own_use"], samples["all_use"] = [0, 1, 1, 2, 2], [0, 1, 2, 3, 4]
    assert share(samples, PROCESSOR_TIME, 1.0, 3.0) == pytest.approx(0.5)
    assert share(samples, MEMORY, 2.0, 2.0) == pytest.approx(4 / 6)
    assert share(samples[:1], MEMORY, 0.0, 2.0) is None
    samples["all_use"] = 0
    assert share(samples, MEMORY, 2.0, 2.0) is None
