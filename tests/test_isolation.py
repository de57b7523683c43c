"""A measurement has its device and its process to itself, and its death is recorded."""

import dataclasses
import faulthandler
import hashlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from opcost import memory
from opcost.devices import disturbance, machine
from opcost.devices.disturbance import Watch
from opcost.devices.lock import exclusive
from opcost.devices.processor import CpuDevice
from opcost.errors import OpcostError
from opcost.measuring import overhead, station, target_identity
from opcost.measuring.job import subject_job
from opcost.measuring.subjects import ModelSubject, OperatorSubject
from opcost.measuring.target_identity import TargetFiles, identify_target, measure_overhead
from opcost.memory import resident_bytes
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.rows import records, schemas
from opcost.rows.overhead_samples import read_samples
from opcost.tuples import manifest
from opcost.workers import isolation
from opcost.workers.isolation import answer_of, run_isolated


def test_the_childs_memory_is_its_own():
    values = []
    assert run_isolated(lambda: values.append(1), timeout_s=10) is None
    assert values == []


def crash(signal_number):
    faulthandler.disable()  # pytest's would print where
    os.kill(os.getpid(), signal_number)


def test_a_crash_is_an_answer():
    status, message = run_isolated(lambda: crash(signal.SIGSEGV), timeout_s=10)
    assert (status, message) == ("crashed", "killed by SIGSEGV")


def test_a_crash_is_found_in_the_code():
    _, message = run_isolated(lambda: os.kill(os.getpid(), signal.SIGSEGV), timeout_s=10)
    assert re.fullmatch(r"killed by SIGSEGV in tests/test_isolation.py:\d+", message)


def test_a_hang_ends_at_the_time_limit():
    status, message = run_isolated(lambda: time.sleep(60), timeout_s=0.2)
    assert status == "timeout"
    assert re.fullmatch(r"gave up after 0.2 s in tests/test_isolation.py:\d+", message)


def test_memory_has_a_limit():
    def hoard():
        hoarded = b"x" * 2**30  # the child has fewer pages of files than this process
        time.sleep(60 + len(hoarded))

    limit = resident_bytes(os.getpid()) + 2**27
    status, message = run_isolated(hoard, timeout_s=30, memory_bytes=limit)
    assert status == "out_of_memory"
    assert re.fullmatch(r"used more than .* GiB of memory in tests/test_isolation.py:\d+", message)


@pytest.mark.parametrize(
    ("code", "how"),
    [(0, "closed its files, or ended itself"), (3, "ended itself with exit status 3")],
)
def test_a_process_that_ends_itself_has_not_done_its_work(code, how):
    status, message = run_isolated(lambda: os._exit(code), timeout_s=10)
    assert (status, message) == ("crashed", f"its process {how}")


def test_work_may_close_all_files_and_replace_standard_output():
    def break_the_process():
        sys.stdout = sys.stderr = None
        os.closerange(3, 256)

    process = os.getpid()
    status, message = run_isolated(break_the_process, timeout_s=10)
    assert os.getpid() == process
    assert (status, message) == ("crashed", "its process closed its files, or ended itself")


def test_the_end_of_the_job_is_no_result():
    status, _ = run_isolated(lambda: os.kill(os.getpid(), signal.SIGTERM), timeout_s=10)
    assert status == "terminated"


def test_a_copy_that_the_work_forks_does_not_do_it_too():
    status, message = run_isolated(os.fork, timeout_s=10)
    assert (status, message) == ("error", message)
    assert message.startswith("forked a copy of its process, which went on as well")


@pytest.mark.parametrize("leave", [lambda: None, os.setsid], ids=["group", "session"])
@pytest.mark.parametrize("goes_on", [False, True], ids=["ends", "hangs"])
def test_processes_that_work_leaves_running_end_with_it(leave, goes_on, tmp_path):
    note = tmp_path / "pid"

    def work():
        if os.fork() == 0:
            leave()
            note.write_text(str(os.getpid()))
            time.sleep(60)
        wait_for(note.exists)
        if goes_on:
            time.sleep(60)

    status, message = run_isolated(work, timeout_s=1)
    assert status == ("timeout" if goes_on else "error")
    assert goes_on or message == "left a process running"
    assert not alive(int(note.read_text()))


def test_a_fault_of_the_harness_is_no_result(capfd):
    with pytest.raises(SystemExit) as caught:
        run_isolated(lambda: 1 / 0, timeout_s=10)
    assert caught.value.code == 1
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_child_can_be_asked():
    assert answer_of(lambda: {"pid": os.getpid()}, timeout_s=10)["pid"] != os.getpid()


def test_a_child_that_dies_has_no_answer():
    with pytest.raises(OpcostError, match="crashed: killed by SIGSEGV"):
        answer_of(lambda: crash(signal.SIGSEGV), timeout_s=10)


def test_a_child_that_cannot_answer_says_why(capfd):
    def question():
        raise OpcostError("no such device")

    with pytest.raises(SystemExit):
        answer_of(question, timeout_s=10)
    assert capfd.readouterr().err == "opcost: no such device\n"


def test_a_child_does_not_outlive_its_killed_parent(tmp_path):
    note = tmp_path / "pid"
    program = (
        "import os, time, pathlib; from opcost.workers.isolation import run_isolated\n"
        "def work():\n"
        f"    pathlib.Path({str(note)!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "run_isolated(work, 60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": "scripts"}
    ) as parent:
        child = int(wait_for(lambda: note.exists() and note.read_text()))
        parent.kill()
    wait_for(lambda: not alive(child))


def alive(process):
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("waited in vain")


def test_a_second_measurement_waits_and_says_for_whom(tmp_path):
    key = f"test-{os.getpid()}"
    note = tmp_path / "held"
    program = (
        "import sys, time, pathlib; from opcost.devices.lock import exclusive\n"
        f"with exclusive({key!r}, 'operator tuple 7'):\n"
        f"    pathlib.Path({str(note)!r}).touch()\n"
        "    time.sleep(1)\n"
        "    note = time.monotonic()\n"
        "print(note)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": "scripts"},
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        wait_for(note.exists)
        with pytest.raises(OpcostError, match=r"held for 0 s by process \d+, operator tuple 7"):
            enter(exclusive(key, "impatient", timeout_s=0.1))
        with exclusive(key, "patient"):
            entered_s = time.monotonic()
        released_s = float(holder.communicate()[0])
    assert entered_s >= released_s


def enter(context):
    with context:
        raise AssertionError("must not get in")


@pytest.fixture(scope="module", autouse=True)
def shorter_overhead():
    """What calls cost is measured in as many processes, but in each for less time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disturbance.find_baseline_s, "__defaults__", (0.5,))
        patch.setattr(overhead, "_REPETITIONS", 5)
        yield


@pytest.fixture(scope="module")
def identified(conditions, tmp_path_factory):
    """What is found out about a target on this machine, once for all tests."""
    path = tmp_path_factory.mktemp("identity") / "device.json"
    identify_target(conditions.target, path)
    return path.read_text()


@pytest.fixture
def files(conditions, identified, tmp_path):
    (tmp_path / "device.json").write_text(identified)
    return TargetFiles("local", conditions, tmp_path / "device.json")


def test_a_driver_that_hangs_stops_the_study_with_the_remedy(conditions, tmp_path, monkeypatch):
    monkeypatch.setattr(target_identity, "_open_identified", lambda _: time.sleep(60))
    monkeypatch.setattr(target_identity, "_OPENING_TIMEOUT_S", 0.2)
    said = r"timeout: gave up after 0.2 s.*check that `nvidia-smi` responds"
    with pytest.raises(OpcostError, match=said):
        identify_target(conditions.target, tmp_path / "device.json")
    assert not (tmp_path / "device.json").exists()


def test_a_target_knows_what_calls_cost_on_it(files):
    assert json.loads(files.device_file.read_text())["device"] == "cpu"
    samples = read_samples(files.device_file)
    assert len({sample.cold_call_s for sample in samples}) == 6
    assert all(0 < sample.view_call_s < 1e-3 for sample in samples)


VALUE = r"(.*s ± .*%|.*s \[.*s, .*s\]| *too noisy to say|.*s to .*s)"


def test_what_calls_cost_is_measured_again_on_the_same_device_only(
    files, tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(target_identity, "_PROCESSES", 2)
    again = tmp_path / "again.json"
    settings = files.conditions.target
    measure_overhead(settings, "local", files.device_file, again)
    samples = read_samples(again)
    assert len({sample.cold_call_s for sample in samples}) == 2
    assert set(samples).isdisjoint(read_samples(files.device_file))
    said = capfd.readouterr().out
    # Another test may hold the device meanwhile, and is waited for.
    assert re.search(rf"^\[overhead\] local +{VALUE}  call overhead\n\Z", said, re.MULTILINE)
    another_device(files)
    again.unlink()
    with pytest.raises(SystemExit):
        measure_overhead(settings, "local", files.device_file, again)
    assert "device: Other before, " in capfd.readouterr().err
    assert not again.exists()


def another_device(files):
    identity = json.loads(files.device_file.read_text())
    files.device_file.write_text(json.dumps({**identity, "device_name": "Other"}))


def test_a_core_that_was_disturbed_when_the_study_began_is_looked_at_again(
    conditions, tmp_path, monkeypatch
):
    monkeypatch.setattr(target_identity, "_PROCESSES", 1)
    monkeypatch.setattr(CpuDevice, "baseline_s", lambda _: 10.0)
    identify_target(conditions.target, tmp_path / "device.json")
    assert json.loads((tmp_path / "device.json").read_text())["quiet_s"] < 1


class Restless(Watch):
    """Never finds the core left alone."""

    def look(self):
        return False


def test_a_core_that_is_never_left_alone_is_measured_all_the_same_and_said_to_be(
    conditions, tmp_path, monkeypatch
):
    monkeypatch.setattr(target_identity, "_PROCESSES", 1)
    monkeypatch.setattr(CpuDevice, "watch", lambda *_: Restless())
    identify_target(conditions.target, tmp_path / "device.json")
    samples = read_samples(tmp_path / "device.json")
    assert all(sample.disturbed for sample in samples)


@pytest.fixture
def one_tuple(tiny_tuples, tmp_path):
    collected = manifest.collect(tiny_tuples, ["conv2d"])
    manifest.write_manifest(tmp_path / "tuples.json", collected)
    tuple_id = manifest.to_benchmark(collected)[0]
    return OperatorSubject(manifest.read_record(tmp_path / "tuples.json", tuple_id))


def test_a_tuple_that_kills_its_process_is_a_row(files, one_tuple, tmp_path, monkeypatch):
    monkeypatch.setattr(station, "expected_device", lambda *_: crash(signal.SIGABRT))
    subject_job(one_tuple, files, 1, tmp_path / "row.parquet")
    [row] = records.read(tmp_path / "row.parquet", schemas.OPERATOR).to_pylist()
    assert row["status"] == "crashed"
    assert row["error"].startswith(
        "killed by SIGABRT. The values that opcost generates may not suit"
    )
    assert row["tuple_id"] == one_tuple.record.operator_tuple.tuple_id
    assert row["conditions_json"] == files.conditions.to_json()


def test_another_device_than_the_study_began_with_is_refused(files, one_tuple, tmp_path, capfd):
    another_device(files)
    with pytest.raises(SystemExit):
        subject_job(one_tuple, files, 1, tmp_path / "row.parquet")
    message = capfd.readouterr().err
    assert "was identified in another environment" in message
    assert "device: Other before, " in message
    assert not (tmp_path / "row.parquet").exists()


def test_a_model_that_is_no_longer_its_definition_fails_the_job(files, tmp_path, capfd):
    (tmp_path / "edited_model.py").write_text("from torch.nn import ReLU as build")
    definition = ModelDefinition(
        "edited", (InputSpec((2,)),), factory="edited_model:build", source_digest="0" * 16
    )
    with pytest.raises(SystemExit):
        subject_job(ModelSubject(definition, tmp_path), files, 1, tmp_path / "row.parquet")
    assert "has changed since the run began" in capfd.readouterr().err
    assert not (tmp_path / "row.parquet").exists()


def test_the_row_of_a_model_that_moves_and_fails_is_where_it_belongs(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "moving_model.py").write_text("import os\ndef build(): os.chdir('/'); 1 / 0")
    definition = ModelDefinition("moving", (InputSpec((2,)),), factory="moving_model:build")
    subject_job(ModelSubject(definition, tmp_path), files, 1, Path("row.parquet"))
    [row] = records.read(tmp_path / "row.parquet", schemas.MODEL).to_pylist()
    assert row["status"] == "error"
    assert "division by zero" in row["error"]


@pytest.fixture
def card_of(monkeypatch):
    """Makes the processor pass for a card with that identifier."""

    monkeypatch.setattr(target_identity, "_PROCESSES", 0)

    def pretend(uuid, name="Card"):
        monkeypatch.setattr(CpuDevice, "name", "card")
        monkeypatch.setattr(CpuDevice, "uuid", uuid)
        monkeypatch.setattr(machine, "processor_name", lambda: name)

    return pretend


def measured_on(card_of, conditions, one_tuple, folder, second_card):
    card_of("first")
    identify_target(conditions.target, folder / "device.json")
    card_of(*second_card)
    files = TargetFiles("h100", conditions, folder / "device.json")
    subject_job(one_tuple, files, 1, folder / "row.parquet")
    return records.read(folder / "row.parquet", schemas.OPERATOR).to_pylist()


@pytest.fixture
def any_of_kind(conditions):
    return dataclasses.replace(
        conditions, target=dataclasses.replace(conditions.target, any_of_kind=True)
    )


def test_one_card_is_not_another_of_its_kind(card_of, conditions, one_tuple, tmp_path, capfd):
    with pytest.raises(SystemExit):
        measured_on(card_of, conditions, one_tuple, tmp_path, ("second",))
    message = capfd.readouterr().err
    assert "GPU (hash of its UUID): " in message
    assert "Measure on any such device: any_of_kind: true" in message


def test_any_card_of_a_kind_may_measure_if_that_is_asked_for(
    card_of, any_of_kind, one_tuple, tmp_path
):
    [row] = measured_on(card_of, any_of_kind, one_tuple, tmp_path, ("second",))
    assert row["status"] == "ok"
    assert row["device_uuid_hash"] == hashlib.sha256(b"second").hexdigest()[:16]
    assert '"any_of_kind": true' in row["conditions_json"]


def test_a_card_of_another_kind_may_not(card_of, any_of_kind, one_tuple, tmp_path, capfd):
    with pytest.raises(SystemExit):
        measured_on(card_of, any_of_kind, one_tuple, tmp_path, ("second", "Other"))
    assert "device: Card before, Other now" in capfd.readouterr().err


def test_a_card_of_a_kind_is_locked_as_itself(
    card_of, any_of_kind, one_tuple, tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(target_identity, "_ALLOTTED_TIMEOUT_S", 0.1)
    with (
        exclusive(hashlib.sha256(b"second").hexdigest()[:16], "somebody else"),
        pytest.raises(SystemExit),
    ):
        measured_on(card_of, any_of_kind, one_tuple, tmp_path, ("second",))
    assert "held for 0 s by process" in capfd.readouterr().err


def test_a_measurement_reports_itself(files, one_tuple, tmp_path, capfd):
    output = tmp_path / "operators" / "row.parquet"
    subject_job(one_tuple, files, 1, output)
    assert "[operator] local" in capfd.readouterr().out
    assert pq.read_table(output)["status"].to_pylist() == ["ok"]


def test_more_threads_than_cores_are_refused(conditions, tmp_path):
    target = dataclasses.replace(conditions.target, threads=4096)
    with pytest.raises(OpcostError, match=r"4096 threads; this machine has \d+ cores: set"):
        identify_target(target, tmp_path / "device.json")


def refusal_of_two_threads(reserved=None):
    """In a process of its own, because PyTorch's threads start once."""
    code = f"""
from opcost.devices.environment import refuse_threads_without_cores
import torch
torch.set_num_threads(2)
refuse_threads_without_cores(2, {reserved})
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr


needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@needs_two_cores
@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"OMP_PLACES": "{0}", "OMP_PROC_BIND": "true"}, r"2 ran in this process, on cores \[0\]"),
        ({"OMP_THREAD_LIMIT": "1"}, "1 ran in this process"),
    ],
)
def test_threads_that_variables_of_openmp_keep_from_running_are_refused(
    variables, found, monkeypatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    refused = refusal_of_two_threads()
    assert re.search(f"requests 2 threads; {found}.*to at most 1, or", refused)
    assert all(f"{name}={value}" in refused for name, value in variables.items())


@needs_two_cores
def test_threads_that_have_cores_of_their_own_run(monkeypatch):
    monkeypatch.setenv("OMP_PLACES", "cores")
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    assert refusal_of_two_threads(reserved=sorted(os.sched_getaffinity(0))) == ""
    assert "to at most 1" in refusal_of_two_threads(reserved=[0])


@needs_two_cores
def test_threads_of_a_process_that_may_use_one_core_are_refused(conditions, tmp_path, capfd):
    target, cores = dataclasses.replace(conditions.target, threads=2), os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        with pytest.raises(SystemExit):
            identify_target(target, tmp_path / "device.json")
    finally:
        os.sched_setaffinity(0, cores)
    assert "requests 2 threads; 2 ran in this process, on cores [0]" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("line", "files", "cores"),
    [
        ("0::", {"cpu.max": "150000 100000"}, 1.5),
        ("0::", {"cpu.max": "max 100000"}, math.inf),
        ("3:cpu,cpuacct:", {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}, 0.5),
        ("3:cpu,cpuacct:", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, math.inf),
        ("3:memory:", {"cpu.max": "150000 100000"}, math.inf),
    ],
)
def test_the_quota_of_the_groups_around_a_process_is_known_in_cores(
    line, files, cores, tmp_path, monkeypatch
):
    job = tmp_path / ("" if line == "0::" else "cpu") / "job"
    (job / "step").mkdir(parents=True)
    (tmp_path / "own").write_text(f"{line}/job/step\n")
    for name, text in files.items():
        (job / name).write_text(text)
    monkeypatch.setattr(memory, "_CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(memory, "_OWN_GROUPS", tmp_path / "own")
    assert memory.allowed_cores() == cores


def test_a_child_that_takes_long_is_not_silent(monkeypatch, capfd):
    monkeypatch.setattr(isolation, "_SILENT_S", 0.2)
    assert run_isolated(lambda: time.sleep(1.2), timeout_s=10) is None
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 3
    assert all(
        re.fullmatch(r"opcost: no result yet after \d s; gives up after 10 s", line)
        for line in said
    )
