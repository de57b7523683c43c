"""What is read from an NVIDIA GPU, by the real pynvml from a simulated one, and what is refused."""

import json
import os
import subprocess
import sys

import pytest
from opcost.devices.device import open_device
from opcost.devices.gpu_settings import gpu_state
from opcost.energy.meter import MeterUnavailable
from opcost.energy.meters import open_meter
from opcost.energy.nvml import NvmlMeter, device_serials, device_uuids, visible_uuid
from opcost.target import Target

from tests.checkout import REPOSITORY
from tests.simulated_nvml.card import UUID, build

NOT_SUPPORTED, NO_PERMISSION, LOST = 3, 4, 15


@pytest.fixture
def run(tmp_path_factory):
    """Runs Python in another process, with the library on LD_LIBRARY_PATH; what it prints."""

    def run(*arguments, flags=(), **simulated):
        folder = tmp_path_factory.mktemp("nvml")
        if build(folder, *flags) is None:
            pytest.skip("no C compiler (cc) to build the simulated NVML with")
        paths = [REPOSITORY / "scripts", REPOSITORY]
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(folder),
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            **{f"SIMULATED_{name.upper()}": str(value) for name, value in simulated.items()},
        }
        program = [sys.executable, *arguments]
        completed = subprocess.run(program, env=environment, capture_output=True, text=True)
        assert completed.returncode == 0, completed.stderr
        return json.loads(completed.stdout)

    return run


def test_in_real_time_power_and_energy_are_the_simulated_ones(run):
    row = run("-m", "tests.simulated_nvml.measure", UUID, noise=0.003, performance_state=2)
    # Where this machine is busy, the simulated card idles between two calls.
    assert row["power_w"] == pytest.approx(250, rel=0.1)
    assert row["power_ci_low_w"] < row["power_w"] < row["power_ci_high_w"]
    assert row["energy_j"] == pytest.approx(row["power_w"] * row["time_s"])
    assert row["energy_ci_low_j"] < row["energy_j"] < row["energy_ci_high_j"]
    assert row["idle_power_w"] == pytest.approx(60, rel=0.02)
    assert row["counter_power_w"] == pytest.approx(row["power_w"], rel=0.12)
    assert (row["energy_reason"], row["meter"]) == (None, "nvml_power_instant")
    assert len(row["power_sample_w"]) == len(row["power_sample_time_s"]) >= 8
    assert row["performance_state"] == "P2"


OF_A_METER = """
import json, sys
from opcost.energy.nvml import NvmlMeter
meter = NvmlMeter(sys.argv[1])
averaging_s = meter.assumed.averaging_s
print(json.dumps([meter.name, averaging_s, meter.power_w(), meter.counter_j(), {**meter.missing}]))
"""


def test_an_older_driver_has_the_plain_reading_only(run):
    name, averaging_s, power_w, counter_j, missing = run(
        "-c", OF_A_METER, UUID, flags=("-DOLD_DRIVER",), noise=0
    )
    assert (name, averaging_s, counter_j) == ("nvml_power_usage", 1.0, None)
    assert power_w == pytest.approx(60, rel=0.02)
    assert "Function Not Found" in missing["energy counter"]
    assert "Function Not Found" in missing["nvml_power_instant"]


def test_readings_become_watts_joules_and_seconds(card):
    card.reset(power_cap_w=300, sw_thermal_share=0.25, hw_thermal_share=0.25, brake_share=0.1)
    meter = NvmlMeter(UUID)
    before_j = meter.counter_j()
    card.run(2.0, 400)
    card.sleep(2.0)
    assert meter.power_w() == pytest.approx(300)
    assert meter.counter_j() - before_j == pytest.approx(600)
    state = meter.state()
    assert (state.sm_clock_mhz, state.memory_clock_mhz) == (1980, 2619)
    assert (state.power_limit_w, state.utilisation, state.other_processes) == (300, 0, 0)
    assert state.power_capped_s == pytest.approx(2)
    assert state.thermal_throttle_s == pytest.approx(1)
    assert state.brake_throttle_s == pytest.approx(0.2)
    assert state.temperature_c > 30
    assert dict(state.missing) == {}


def test_the_instantaneous_reading_is_preferred_and_all_are_offered(card):
    card.reset()
    meter = NvmlMeter(UUID)
    assert meter.name == "nvml_power_instant"
    card.run(0.5, 360)
    card.sleep(0.5)
    shown = {name: read() for name, read in meter.readings().items()}
    assert shown["nvml_power_instant"] == pytest.approx(360)
    assert shown["nvml_power_average"] == shown["nvml_power_usage"] == pytest.approx(210)


def test_without_it_the_plain_reading_is_taken_and_its_second_acknowledged(card):
    card.reset(fail_instant=NOT_SUPPORTED)
    meter = NvmlMeter(UUID)
    assert (meter.name, meter.assumed.averaging_s) == ("nvml_power_usage", 1.0)
    assert meter.missing["nvml_power_instant"] == "NVML: Not Supported"


def test_what_a_gpu_does_not_tell_is_none_with_the_reason(card):
    card.reset(fail_counter=NOT_SUPPORTED, fail_clocks=NO_PERMISSION, fail_throttle=NOT_SUPPORTED)
    card.set(fail_processes=NO_PERMISSION)
    meter = NvmlMeter(UUID)
    assert meter.counter_j() is None
    assert meter.missing == {"energy counter": "NVML: Not Supported"}
    state = meter.state()
    silent = ("sm_clock_mhz", "power_capped_s", "thermal_throttle_s", "other_processes")
    assert [getattr(state, name) for name in silent] == [None] * 4
    assert state.missing["sm_clock_mhz"] == "NVML: Insufficient Permissions"
    assert set(silent) <= set(state.missing)


def test_how_a_gpu_is_set_up_is_read_before_it_is_measured(card):
    card.reset(ecc=1, persistence=0, memory_used_bytes=5e8, sm_clock_target_mhz=1755)
    assert gpu_state(UUID) == {
        "power_limit_w": 700,
        "ecc_enabled": True,
        "persistence_mode": False,
        "memory_used_bytes": 500_000_000,
        "sm_clock_target_mhz": 1755,
        "memory_clock_target_mhz": 2619,
    }


def test_of_its_setup_what_a_gpu_does_not_tell_is_none(card):
    card.reset(fail_modes=NOT_SUPPORTED, fail_memory=NO_PERMISSION, fail_targets=NOT_SUPPORTED)
    card.set(fail_limits=NOT_SUPPORTED)
    assert set(gpu_state(UUID).values()) == {None}
    assert gpu_state("GPU-another") == {}


def test_other_processes_are_counted_without_this_one(card):
    card.reset(other_processes=2)
    assert NvmlMeter(UUID).state().other_processes == 2


def test_in_a_container_this_process_may_have_another_number(card, monkeypatch):
    card.reset(own_pid=0)
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    assert NvmlMeter(UUID).state().other_processes == 0
    card.set(other_processes=1)
    assert NvmlMeter(UUID).state().other_processes == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"mig": 1}, "MIG mode: its power sensor covers all instances"),
        ({"fail_all": NO_PERMISSION}, "Insufficient Permissions"),
        ({"lost_at_s": 0}, "GPU is lost"),
        (
            {f"fail_{name}": NOT_SUPPORTED for name in ("instant", "average", "plain")},
            "no power reading",
        ),
    ],
    ids=["mig", "permission", "lost", "no reading"],
)
def test_a_gpu_that_cannot_be_measured_says_why(card, settings, reason):
    card.reset(**settings)
    with pytest.raises(MeterUnavailable, match=reason):
        NvmlMeter(UUID)


def test_a_processor_is_asked_for_its_own_counters():
    device = open_device(Target("cpu", 1, False))
    reason = None
    try:
        assert open_meter(device.kind.name, device.uuid).name == "rapl"
    except MeterUnavailable as unavailable:
        reason = str(unavailable)
    assert reason is None or "powercap" in reason


def test_uuids_and_serial_numbers_of_the_machine(card):
    card.reset()
    assert device_uuids() == [UUID]
    assert device_serials() == ["1650523"]


def test_serial_numbers_that_nvml_does_not_give_are_no_number(card):
    card.reset(fail_all=NO_PERMISSION)
    with pytest.raises(MeterUnavailable, match="Insufficient Permissions"):
        device_serials()


UUIDS = ["GPU-aa1", "GPU-ab2", "GPU-c3"]


@pytest.mark.parametrize(
    ("device", "visible", "expected"),
    [
        ("1", None, "GPU-ab2"),
        ("GPU-c3", None, "GPU-c3"),
        ("GPU-ab", None, "GPU-ab2"),
        ("0", "2,0", "GPU-c3"),
        ("1", "2,0", "GPU-aa1"),
        ("0", "GPU-ab", "GPU-ab2"),
        ("1", "0, GPU-c3", "GPU-c3"),
        ("0", "2,7,0", "GPU-c3"),
    ],
)
def test_devices_are_numbered_as_cuda_numbers_them(device, visible, expected):
    assert visible_uuid(device, UUIDS, visible) == expected


@pytest.mark.parametrize(
    ("device", "visible", "reason"),
    [
        ("3", None, "there are GPU-aa1, GPU-ab2, GPU-c3"),
        ("GPU-a", None, "no GPU 'GPU-a'"),
        ("0", "", "among CUDA_VISIBLE_DEVICES=; there are none"),
        ("1", "2,7,0", "there are GPU-c3"),
        ("1", "1,1", "there are GPU-ab2"),
        ("0", "MIG-1234", "MIG instance"),
    ],
)
def test_a_device_that_cuda_would_not_show_is_refused(device, visible, reason):
    with pytest.raises(MeterUnavailable, match=reason):
        visible_uuid(device, UUIDS, visible)
