"""Operating points of a GPU, on the simulated NVML: what may be set, and that it is restored.

The power limit of the simulated card is 700 W by itself, and may be 200 to 700 W.
"""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import opcost
import pynvml
import pytest
from click.testing import CliRunner
from opcost.commands import main
from opcost.devices import operating_point
from opcost.devices.device_file import DeviceFile, write_device
from opcost.devices.gpu_settings import Gpu
from opcost.devices.lock import exclusive
from opcost.devices.machine import hashed_uuid
from opcost.devices.operating_point import AS_IT_IS, applied
from opcost.energy.sensor import SCHEMA_VERSION
from opcost.errors import OpcostError
from opcost.files import first_line, write_json
from opcost.measuring import benchmark, station, target_identity
from opcost.measuring.job import sensor_job, subject_job
from opcost.measuring.subjects import OperatorSubject
from opcost.measuring.target_identity import TargetFiles
from opcost.rows import records, schemas
from opcost.target import OperatingPoint, Target
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.tuple_record import TupleRecord

from tests.simulated_nvml.card import UUID

KEY = hashed_uuid(UUID)
NO_PERMISSION, LOST = 4, 15
BEFORE_W, LIMIT_W = 650.0, 300.0
POINT = OperatingPoint(LIMIT_W)
READY = "the point is set"
RELU = OperatorTuple("aten.relu.default", (("self", TensorSpec((1,), "float32")),))


@pytest.fixture
def record(tmp_path):
    return tmp_path / f"opcost-{KEY}.point"


def set_in_job(point=POINT):
    with exclusive(KEY, "a job") as held, applied(held, point):
        pass


@pytest.fixture
def job(gpu):
    """Starts a process that measures at the point until it is told to go on, or killed."""
    started = []

    def start(**environment):
        body = f"""
        import select, sys
        from opcost.devices.lock import exclusive
        from opcost.devices.operating_point import applied
        from opcost.target import OperatingPoint

        with exclusive({KEY!r}, "a job") as held, applied(held, OperatingPoint({LIMIT_W})):
            print({READY!r}, flush=True)
            while not select.select([sys.stdin], [], [], 0.1)[0]:
                pass  # a signal that comes just before would not wake a longer wait
            if sys.stdin.readline() != "go on\\n":
                raise RuntimeError("the measurement failed")
        """
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(body)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, **environment},
        )  # fmt: skip
        started.append(process)
        assert process.stdout.readline().strip() == READY
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def guard_of(process):
    """The process id of a job's guard."""
    [found] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(found)


def ended(pid):
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text():
        time.sleep(0.01)


def next_job():
    """Takes the lock of the GPU, as every job does."""
    with exclusive(KEY, "the next job", timeout_s=20):
        pass


def test_a_point_is_set_in_the_block_and_the_previous_one_is_restored(gpu, record):
    point = OperatingPoint(LIMIT_W, 1500, 1310)
    with exclusive(KEY, "a job") as held, applied(held, point):
        assert gpu.now == (LIMIT_W, 1500, 1310)
        assert json.loads(record.read_text())["before"]["power_limit_w"] == BEFORE_W
    assert gpu.now == (BEFORE_W, 0, 0)
    assert not record.exists()


def test_what_a_point_leaves_out_stays_as_it_is(gpu):
    gpu.set(BEFORE_W, 1200)
    with exclusive(KEY, "a job") as held, applied(held, POINT):
        assert gpu.now == (LIMIT_W, 1200, 0)
    assert gpu.now == (BEFORE_W, 1200, 0)
    with exclusive(KEY, "a job") as held, applied(held, OperatingPoint()):
        assert gpu.now == (BEFORE_W, 1200, 0)


def finish(process):
    process.stdin.write("go on\n")
    process.stdin.flush()
    process.wait()


def fail(process):
    process.communicate("stop\n")


def kill_guard_first(process):
    guard = guard_of(process)
    os.kill(guard, signal.SIGKILL)
    ended(guard)
    finish(process)


@pytest.mark.parametrize(
    "end",
    [
        finish,
        fail,
        lambda process: process.send_signal(signal.SIGINT),
        lambda process: process.terminate(),
        lambda process: process.send_signal(signal.SIGHUP),
        lambda process: process.kill(),
        kill_guard_first,
        lambda process: os.kill(guard_of(process), signal.SIGTERM) or process.kill(),
    ],
    ids=[
        "it ends",
        "an exception",
        "Ctrl-C",
        "SIGTERM",
        "SIGHUP",
        "SIGKILL",
        "SIGKILL of the guard",
        "SIGTERM of the guard, SIGKILL",
    ],
)
def test_however_a_job_ends_the_gpu_is_as_before(end, gpu, record, job):
    process = job()
    assert gpu.now == (LIMIT_W, 0, 0)
    end(process)
    assert gpu.becomes(BEFORE_W)
    next_job()  # has the lock after the guard
    assert not record.exists()


def test_if_job_and_guard_are_killed_the_next_that_takes_the_lock_restores(gpu, job, capfd):
    process = job()
    guard = guard_of(process)
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    process.kill()
    process.wait()
    assert gpu.now == (LIMIT_W, 0, 0)
    next_job()
    assert gpu.now == (BEFORE_W, 0, 0)
    assert re.search(
        rf"process {process.pid} had left the device at .*\(power limit 300 W\), because it was "
        r"killed, or its guard: restored \(power limit 650 W\)",
        capfd.readouterr().out,
    )
    next_job()
    assert capfd.readouterr().out == ""


def test_what_another_program_sets_meanwhile_stays(gpu, record, job):
    process = job()
    gpu.set(500)
    _, said = process.communicate("go on\n")
    stays = "opcost: power_limit_w stays 500 W, which another program or the driver has set\n"
    assert said == stays
    assert gpu.now == (500, 0, 0)
    assert not record.exists()


def test_what_is_set_after_job_and_guard_were_killed_stays(gpu, record, job, card, capfd):
    process = job()
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(guard_of(process), signal.SIGKILL)
    process.kill()
    process.wait()
    pending = f"process {process.pid} set the power limit 300 W: it or the next opcost process"
    assert pending in CliRunner().invoke(main, ["power-limit"]).output
    gpu.set(500)
    next_job()
    assert gpu.now == (500, 0, 0)
    assert not record.exists()
    said = capfd.readouterr().out
    assert "or its guard: power_limit_w stays 500 W, which another program or" in said
    assert "restored" not in said
    assert "process" not in CliRunner().invoke(main, ["power-limit"]).output


def test_a_record_that_was_deleted_meanwhile_is_not_needed(gpu, record, job):
    process = job()
    record.unlink()
    finish(process)
    assert gpu.now == (BEFORE_W, 0, 0)


def test_without_space_for_the_record_nothing_is_set(gpu, record, tmp_path):
    """The lock fits, and the record in part: the kernel writes as much as fits."""
    body = f"""
    import resource
    from opcost.devices.lock import exclusive
    from opcost.devices.operating_point import applied
    from opcost.target import OperatingPoint

    resource.setrlimit(resource.RLIMIT_FSIZE, (120, 120))
    with exclusive({KEY!r}, "a job") as held, applied(held, OperatingPoint({LIMIT_W})):
        print({READY!r})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)], capture_output=True, text=True
    )
    assert f"{record}, which is to say what must be restored" in done.stderr
    assert "cannot be written: File too large. This user must be able to write to" in done.stderr
    assert READY not in done.stdout
    assert gpu.now == (BEFORE_W, 0, 0)
    assert not record.exists()


def test_whatever_fails_in_the_guard_is_its_answer(gpu, monkeypatch, tmp_path):
    (tmp_path / "pynvml.py").write_text("raise RuntimeError('it is broken')")
    scripts = Path(opcost.__file__).parent.parent
    monkeypatch.setattr(operating_point, "python_path", lambda: f"{tmp_path}:{scripts}")
    with pytest.raises(OpcostError, match="failed: RuntimeError: it is broken"):
        set_in_job()


def test_ctrl_c_while_the_point_is_being_set_restores_as_well(gpu, record, monkeypatch, capfd):
    def interrupted(_):
        assert gpu.becomes(LIMIT_W)
        raise KeyboardInterrupt

    monkeypatch.setattr(operating_point, "_first_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        set_in_job()
    assert gpu.now == (BEFORE_W, 0, 0)
    assert not record.exists()
    assert capfd.readouterr().err == ""


def test_the_command_that_sets_a_limit_restores_first(gpu, job, card):
    process = job()
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(guard_of(process), signal.SIGKILL)
    process.kill()
    process.wait()
    done = CliRunner().invoke(main, ["power-limit", "400"])
    assert "before, it was 650 W" in done.stdout
    assert gpu.now == (400, 0, 0)


def test_a_driver_that_hangs_holds_up_nobody_for_long(gpu, monkeypatch):
    monkeypatch.setenv("SIMULATED_HANG_AT_READING", "0")
    monkeypatch.setattr(operating_point, "_ANSWER_S", 1.0)
    with pytest.raises(OpcostError, match=r"has not answered for 1 s\. Check that `nvidia-smi`"):
        set_in_job()
    monkeypatch.delenv("SIMULATED_HANG_AT_READING")
    next_job()
    assert gpu.now == (BEFORE_W, 0, 0)


def test_nobody_gets_the_gpu_before_it_is_restored(gpu, job):
    process = job()
    guard = guard_of(process)
    os.kill(guard, signal.SIGSTOP)
    process.kill()
    process.wait()
    with (
        pytest.raises(OpcostError, match="has been held"),
        exclusive(KEY, "another", timeout_s=0.3),
    ):
        pass
    os.kill(guard, signal.SIGCONT)
    next_job()
    assert gpu.now == (BEFORE_W, 0, 0)


def test_of_a_lost_gpu_the_record_stays_and_the_message_says_what_to_do(gpu, record, job):
    process = job()
    gpu.refuse(LOST)
    _, said = process.communicate("go on\n")
    assert process.returncode == 0  # what was measured is right
    assert "could not be restored" in said
    assert "GPU is lost" in said
    assert str(record) in said
    with pytest.raises(OpcostError, match="GPU is lost"):
        next_job()
    gpu.refuse(0)
    next_job()
    assert gpu.now == (BEFORE_W, 0, 0)
    assert not record.exists()


def test_without_the_permission_to_restore_nothing_is_measured_at_that_point(
    gpu, record, job, monkeypatch
):
    process = job()
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(guard_of(process), signal.SIGKILL)
    process.kill()
    process.wait()
    monkeypatch.setenv("SIMULATED_FAIL_SETTING", str(NO_PERMISSION))
    with pytest.raises(OpcostError, match=rf"could not be restored.*run as root.* {record} says"):
        next_job()
    monkeypatch.delenv("SIMULATED_FAIL_SETTING")
    next_job()
    assert gpu.now == (BEFORE_W, 0, 0)


@pytest.mark.parametrize(
    ("point", "settings", "message"),
    [
        (OperatingPoint(150), {}, r"power_limit_w is 150; this GPU allows 200 to 700 \(by default"),
        (OperatingPoint(None, 1501), {}, "sm_clock_mhz is 1501; .* 495 to 1980, .* 1500, 1515"),
        (OperatingPoint(None, None, 7), {}, "memory_clock_mhz is 7; .* from 1310 to 2619"),
        (POINT, {"mig": 1}, "MIG mode"),
        (POINT, {"fail_limits": 3}, "cannot be read .NVML: Not Supported"),
        (POINT, {"fail_all": LOST}, "GPU is lost"),
        (POINT, {"fail_setting": NO_PERMISSION}, "Insufficient Permissions.* run as root"),
        (OperatingPoint(None, 1500), {"fail_setting": NO_PERMISSION}, "CAP_SYS_ADMIN"),
        (OperatingPoint(None, 1500, 1310), {"fail_setting": 3}, "1500 MHz failed: .*Not Supported"),
    ],
)
def test_what_the_gpu_does_not_allow_is_refused_and_nothing_is_changed(
    point, settings, message, gpu, record, monkeypatch
):
    for name, value in settings.items():
        monkeypatch.setenv(f"SIMULATED_{name.upper()}", str(value))
    with pytest.raises(OpcostError, match=message):
        set_in_job(point)
    assert gpu.now == (BEFORE_W, 0, 0)
    assert not record.exists()


@pytest.fixture
def target(tmp_path, conditions):
    """The files of a target at the point, whose device is the GPU."""
    write_device(tmp_path / "device.json", DeviceFile("cuda:0", "Simulated", KEY, KEY))
    at_point = replace(conditions, target=Target("cuda", 1, False, power_limit_w=300))
    return TargetFiles("gpu", at_point, tmp_path / "device.json")


def noting(gpu, path, value=None):
    def note(*_, **__):
        path.write_text(str(gpu.now[0]))
        return value

    return note


def test_a_job_measures_at_the_point_of_its_target(gpu, target, tmp_path, monkeypatch):
    monkeypatch.setattr(station, "open_station", noting(gpu, tmp_path / "limit"))
    monkeypatch.setattr(benchmark, "measure", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    monkeypatch.setattr(operating_point, "_STEADY_S", 0.1)
    subject = OperatorSubject(TupleRecord(RELU, (TensorSpec((1,), "float32"),), True, 1, 8))
    subject_job(subject, target, 1, tmp_path / "row.parquet")
    assert float((tmp_path / "limit").read_text()) == LIMIT_W
    assert gpu.now == (BEFORE_W, 0, 0)
    [row] = records.read(tmp_path / "row.parquet", schemas.OPERATOR).to_pylist()
    assert json.loads(row["conditions_json"])["target"]["power_limit_w"] == 300


@pytest.fixture
def identified(gpu, tmp_path, monkeypatch):
    """Identifies the GPU as the device of a target, and notes the limit meanwhile."""
    found = DeviceFile("cuda:0", "Simulated", KEY, KEY)
    noted = tmp_path / "limit"
    monkeypatch.setattr(target_identity, "_identified", lambda _: found)
    monkeypatch.setattr(target_identity, "_with_overhead", noting(gpu, noted, found))

    def identify(**point):
        target_identity.identify_target(
            Target("auto", 1, False, **point), tmp_path / "gpu/device.json"
        )
        return float(noted.read_text())

    return identify


def test_a_target_is_identified_at_its_point(identified, gpu):
    assert identified() == BEFORE_W
    assert identified(power_limit_w=300) == LIMIT_W
    assert gpu.now == (BEFORE_W, 0, 0)


def test_before_anything_is_measured_a_point_that_cannot_be_is_refused(
    identified, tmp_path, monkeypatch
):
    with pytest.raises(OpcostError, match="this GPU allows 200 to 700"):
        identified(power_limit_w=100)
    monkeypatch.setenv("SIMULATED_FAIL_SETTING", str(NO_PERMISSION))
    with pytest.raises(OpcostError, match="run as root"):
        identified(power_limit_w=300)
    monkeypatch.setattr(target_identity, "_identified", lambda _: DeviceFile("cpu", "Simulated"))
    with pytest.raises(OpcostError, match="device auto is cpu here, which has max_frequency_mhz"):
        identified(power_limit_w=300)
    assert not (tmp_path / "gpu/device.json").exists()


SENSOR = {
    "schema_version": SCHEMA_VERSION,
    "device_name": "Simulated",
    "device_uuid_hash": KEY,
    "machine_id_hash": None,
    "driver_version": "580",
    "meter": "nvml_power_instant",
    "readings": {"nvml_power_instant": dict.fromkeys(("refresh_s", "averaging_s", "lag_s"))},
    "counter": {"refresh_s": 0.1},
    "idle_power_w": 60.0,
}
SENSOR["readings"]["nvml_power_instant"] |= {"rise_s": 0.2, "correlated_share": 1.0}


@pytest.fixture
def characterised(gpu, tmp_path, monkeypatch, conditions):
    """Makes the sensor file of a second target of the GPU, beside that of a first."""
    for name in ("first", "second"):
        known = {"driver_version": "580", "torch_version": "2.15.0"}
        device = DeviceFile("cuda:0", "Simulated", KEY, KEY, **known)
        folder = tmp_path / f"results/{name}/cuda-0"
        write_device(folder / "device.json", device)

    def fresh(_name, _open, output):
        assert gpu.now[0] == BEFORE_W
        write_json(output, SENSOR)

    monkeypatch.setattr(station, "characterise_target", fresh)

    def characterised(first):
        write_json(tmp_path / "results/first/cuda-0/sensor.json", first)
        folder = tmp_path / "results/second/cuda-0"
        sensor_job(TargetFiles.of(folder, conditions.to_json()), folder / "sensor.json")
        return json.loads((folder / "sensor.json").read_text())

    return characterised


def test_the_sensor_of_a_gpu_is_characterised_once_for_all_its_points(characterised, capfd):
    assert characterised(SENSOR) == SENSOR | {"characterised_on_target": "first"}
    assert "as characterised for first" in capfd.readouterr().out
    origin = {"characterised_on_target": "before"}
    assert characterised(SENSOR | origin) == SENSOR | origin


@pytest.mark.parametrize(
    "change",
    [
        {"device_uuid_hash": "0" * 16},
        {"driver_version": "590"},
        {"meter": None, "meter_reason": "it was lost"},
        {"schema_version": 0},
    ],
    ids=["another GPU", "another driver", "no meter", "unreadable"],
)
def test_that_of_another_gpu_or_environment_is_not_taken_over(change, characterised):
    assert characterised(SENSOR | change) == SENSOR


@pytest.fixture
def switch(gpu, monkeypatch, capfd):
    """Measures at a point, and returns the seconds for which the GPU settled, None without."""
    monkeypatch.setattr(operating_point, "_STEADY_S", 0.5)

    def switch(point, most_s=60):
        monkeypatch.setattr(operating_point, "_SETTLE_S", most_s)
        start_s = time.monotonic()
        with exclusive(KEY, "a job", point=point) as held, applied(held, point, settle=True):
            settled_s = time.monotonic() - start_s
        return settled_s if "waiting until the temperature" in capfd.readouterr().out else None

    return switch


def test_the_gpu_settles_after_a_switch_only(switch):
    found = [switch(point) for point in (AS_IT_IS, POINT, POINT, AS_IT_IS, AS_IT_IS)]
    assert [each is None for each in found] == [True, False, True, False, True]
    assert found[1] > 0.5 < found[3]


def test_a_temperature_that_moves_is_waited_for_within_a_limit(switch, monkeypatch):
    monkeypatch.setenv("SIMULATED_ALWAYS_W", "400")
    monkeypatch.setenv("SIMULATED_THERMAL_S", "1")
    # From 36 to 70 degrees: it moves by less than one in half a second after some.
    assert switch(OperatingPoint(400)) > 2.0 > switch(OperatingPoint(399), most_s=0.6)


def test_another_gpu_that_does_not_answer_is_left_out(gpu, card, monkeypatch):
    handle_of = pynvml.nvmlDeviceGetHandleByIndex

    def without_first(number):
        if number == 0:
            raise pynvml.NVMLError(LOST)
        return handle_of(number - 1)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", without_first)
    assert Gpu(KEY).power_limit_w() == BEFORE_W
    with pytest.raises(OpcostError, match=f"its hashes: {KEY}; NVML: GPU 0: GPU is lost"):
        Gpu("0123")


def test_another_gpu_or_none_is_refused(gpu, monkeypatch):
    with (
        pytest.raises(OpcostError, match="no GPU whose UUID has the hash 0123"),
        exclusive("0123", "a job") as held,
        applied(held, POINT),
    ):
        pass
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    with pytest.raises(OpcostError, match="NVML: NVML Shared Library Not Found"):
        set_in_job()


def left(record, boot=None, **before):
    """The record of a process that was killed."""
    boot = first_line(operating_point._BOOT) if boot is None else boot
    known = {"boot": boot, "process": 1, "point": "a point", "set": before, "before": before}
    record.write_text(json.dumps(known))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_the_record_of_another_user_sets_nothing(gpu, record, capfd):
    left(record, power_limit_w=400.0)
    os.chown(record, 12345, 12345)
    next_job()
    assert f"{record} is another user's, and is not used" in capfd.readouterr().out
    with pytest.raises(OpcostError, match="cannot be written: File exists"):
        set_in_job()  # what it would have to restore could not be noted
    assert gpu.now == (BEFORE_W, 0, 0)


def test_after_a_restart_of_the_machine_nothing_is_restored(gpu, record, capfd):
    """The driver has forgotten what was set, and what was set before that."""
    left(record, "another", power_limit_w=400.0, sm_clock_mhz=None)
    next_job()
    assert "the machine has restarted since" in capfd.readouterr().out
    assert gpu.now == (BEFORE_W, 0, 0)
    assert not record.exists()


@pytest.mark.parametrize("content", ["", '{"boot": "a'])
def test_an_incomplete_record_is_of_a_process_that_had_set_nothing(content, gpu, record, capfd):
    record.write_text(content)
    next_job()
    assert not record.exists()
    assert "before it had set" in capfd.readouterr().out


def test_a_fork_of_a_job_leaves_the_point_to_it(gpu):
    with exclusive(KEY, "a job") as held, applied(held, POINT):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert gpu.now == (LIMIT_W, 0, 0)
    assert gpu.now == (BEFORE_W, 0, 0)
