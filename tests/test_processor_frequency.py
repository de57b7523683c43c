"""The highest frequency of a processor as an operating point, on a simulated tree of cpufreq.

Two policies of two cores each allow 800 to 3500 MHz; the administrator has set 3000 MHz at most.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from itertools import chain, repeat

import pytest
from opcost.devices import lock, operating_point, processor_settings
from opcost.devices.lock import exclusive
from opcost.devices.operating_point import applied
from opcost.devices.processor_settings import max_frequency_mhz
from opcost.errors import OpcostError
from opcost.measuring.benchmark import measure
from opcost.measuring.subjects import OperatorSubject
from opcost.rows.flags import POINT_CHANGED
from opcost.target import OperatingPoint
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.tuple_record import TupleRecord

from tests.stations import station_of

LIMIT = OperatingPoint(max_frequency_mhz=2000)
BEFORE_MHZ, LIMIT_MHZ = [3000, 3000], [2000, 2000]
READY = "the point is set"


class CpuFreq:
    """Policies of cpufreq in a folder."""

    def __init__(self, folder):
        self.folder = folder
        cores = sorted(os.sched_getaffinity(0))
        for number in (0, 2):
            policy = folder / f"policy{number}"
            policy.mkdir(parents=True)
            texts = {
                "cpuinfo_min_freq": "800000",
                "cpuinfo_max_freq": "3500000",
                "scaling_min_freq": "1000000",
                "scaling_max_freq": "3000000",
                "affected_cpus": " ".join(map(str, cores)) if number == 0 else "900 901",
            }
            for name, text in texts.items():
                (policy / name).write_text(text + "\n")

    @property
    def now_mhz(self):
        """What is set of each policy."""
        policies = sorted(self.folder.glob("policy*"))
        return [int((each / "scaling_max_freq").read_text()) // 1000 for each in policies]


@pytest.fixture
def cores(tmp_path, monkeypatch):
    found = CpuFreq(tmp_path / "cpufreq")
    monkeypatch.setenv("OPCOST_CPUFREQ", str(found.folder))
    monkeypatch.setenv("OPCOST_LOCKS", str(tmp_path))
    monkeypatch.setattr(processor_settings, "FOLDER", found.folder)
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    return found


def set_in_job(point=LIMIT):
    with exclusive("cpu", "a job") as held, applied(held, point):
        pass


def test_a_frequency_is_set_in_the_block_and_the_previous_one_is_restored(cores, tmp_path):
    record = tmp_path / "opcost-cpu.point"
    with exclusive("cpu", "a job") as held, applied(held, LIMIT):
        assert cores.now_mhz == LIMIT_MHZ
        assert max_frequency_mhz() == 2000
        known = json.loads(record.read_text())["before"]["max_frequency_mhz"]
        assert known == {"policy0": 3_000_000, "policy2": 3_000_000}
    assert cores.now_mhz == BEFORE_MHZ
    assert not record.exists()


def test_a_frequency_that_another_program_sets_meanwhile_stays(cores, capfd):
    with exclusive("cpu", "a job") as held, applied(held, LIMIT):
        (cores.folder / "policy0" / "scaling_max_freq").write_text("2500000")
        (cores.folder / "policy2" / "scaling_max_freq").write_text("1800000")  # as if it is hot
    assert cores.now_mhz == [2500, 3000]
    assert "max_frequency_mhz stays 2500 MHz, which another" in capfd.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_however_a_job_ends_the_frequency_is_as_before(cores, number):
    body = f"""
    import time
    from opcost.devices.lock import exclusive
    from opcost.devices.operating_point import applied
    from opcost.target import OperatingPoint

    with exclusive("cpu", "a job") as held, applied(held, {LIMIT!r}):
        print({READY!r}, flush=True)
        time.sleep(60)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(body)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout.readline().strip() == READY
    assert cores.now_mhz == LIMIT_MHZ
    process.send_signal(number)
    process.communicate()
    with exclusive("cpu", "the next job", timeout_s=20):  # the guard has the lock until then
        assert cores.now_mhz == BEFORE_MHZ


@pytest.mark.parametrize(
    ("frequency_mhz", "message"),
    [
        (3600, "max_frequency_mhz is 3600; the cores allow 1000 to 3500"),
    ],
)
def test_a_frequency_that_the_cores_do_not_allow_is_refused(cores, frequency_mhz, message):
    with pytest.raises(OpcostError, match=message):
        set_in_job(OperatingPoint(max_frequency_mhz=frequency_mhz))
    assert cores.now_mhz == BEFORE_MHZ


def remove(policy):
    shutil.rmtree(policy)


def take_offline(policy):
    """Linux then reads nothing from the policy's files: "device or resource busy"."""
    for file in policy.iterdir():
        file.write_text("")


@pytest.mark.parametrize("lose", [remove, take_offline])
def test_a_policy_that_is_gone_afterwards_is_skipped(cores, lose, tmp_path, capfd):
    with exclusive("cpu", "a job") as held, applied(held, LIMIT):
        lose(cores.folder / "policy2")
    assert int((cores.folder / "policy0" / "scaling_max_freq").read_text()) == 3_000_000
    with exclusive("cpu", "the next job"):
        assert capfd.readouterr() == ("", "")


def test_without_any_policy_left_nothing_remains_to_be_restored(cores, tmp_path):
    with exclusive("cpu", "a job") as held, applied(held, LIMIT):
        remove(cores.folder)
    assert not (tmp_path / "opcost-cpu.point").exists()


def test_of_cores_that_are_offline_nothing_is_set(cores):
    take_offline(cores.folder / "policy2")
    with exclusive("cpu", "a job") as held, applied(held, LIMIT):
        assert int((cores.folder / "policy0" / "scaling_max_freq").read_text()) == 2_000_000
    assert int((cores.folder / "policy0" / "scaling_max_freq").read_text()) == 3_000_000
    take_offline(cores.folder / "policy0")
    with pytest.raises(OpcostError, match="has no policy"):
        set_in_job()


def test_machines_with_a_policy_for_each_of_hundreds_of_cores_are_restored(cores, tmp_path):
    for number in range(100, 400):
        shutil.copytree(cores.folder / "policy0", cores.folder / f"policy{number}")
    record = tmp_path / "opcost-cpu.point"
    with exclusive("cpu", "a job") as held, applied(held, LIMIT):
        left = record.read_text()
        assert set(cores.now_mhz) == {2000}
    record.write_text(left)
    for policy in cores.folder.iterdir():
        (policy / "scaling_max_freq").write_text("2000000")
    with exclusive("cpu", "the next job"):
        assert set(cores.now_mhz) == {3000}


def test_after_a_switch_a_processor_without_sensors_of_temperature_is_not_waited_for(
    cores, monkeypatch
):
    monkeypatch.setattr(operating_point, "_STEADY_S", 30.0)
    with exclusive("cpu", "a job at the point", point=LIMIT) as held:
        start_s = time.monotonic()
        with applied(held, LIMIT, settle=True):
            assert time.monotonic() - start_s < 20


def test_where_linux_has_no_limits_of_frequencies_none_is_set(cores, monkeypatch, tmp_path):
    monkeypatch.setenv("OPCOST_CPUFREQ", str(tmp_path / "none"))
    with pytest.raises(OpcostError, match="none has no policy, as in virtual machines"):
        set_in_job()


def test_a_file_that_holds_no_frequency_is_explained(cores):
    second = cores.folder / "policy2" / "scaling_max_freq"
    second.unlink()
    second.symlink_to("/proc/version")
    with pytest.raises(OpcostError, match="policy2/scaling_max_freq says 'Linux"):
        set_in_job()
    assert int((cores.folder / "policy0" / "scaling_max_freq").read_text()) == 3_000_000


def test_a_file_that_cannot_be_written_is_explained_and_the_others_are_restored(cores):
    second = cores.folder / "policy2" / "scaling_max_freq"
    second.unlink()
    second.symlink_to("/proc/sys/kernel/random/entropy_avail")  # a number, which is read-only
    with pytest.raises(OpcostError, match=r"setting the highest frequency .*: run as root"):
        set_in_job()
    assert int((cores.folder / "policy0" / "scaling_max_freq").read_text()) == 3_000_000


@pytest.mark.parametrize(("later_mhz", "is_flagged"), [(2000, False), (900, True)])
def test_a_frequency_that_another_program_sets_meanwhile_is_a_flag(
    cpu, watch, conditions, monkeypatch, later_mhz, is_flagged
):
    spec = TensorSpec((2, 3), "float32")
    relu = OperatorTuple("aten.relu.default", (("self", spec),))
    subject = OperatorSubject(TupleRecord(relu, (spec,), True, 0, 0, ()))
    allowed = chain([2000.0], repeat(float(later_mhz)))
    monkeypatch.setattr(type(cpu), "setup", lambda _: {"max_frequency_mhz": next(allowed)})
    row = measure(subject, station_of(cpu, conditions, watch))
    assert row["max_frequency_mhz"] == 2000
    assert (POINT_CHANGED in row["flags"]) == is_flagged
