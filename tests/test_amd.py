"""What is read from an AMD GPU, through a simulated amdsmi, and what is refused.

No AMD GPU has been read with this code. The faults are those that trackers report, by number.
"""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.energy.amd import AmdMeter
from opcost.energy.amd_library import pci_addresses
from opcost.energy.characterization import characterise
from opcost.energy.meter import MeterUnavailable
from opcost.energy.meters import every_meter, open_meter

from tests.checkout import REPOSITORY

FOLDER = REPOSITORY / "tests/simulated_amd"
ADDRESS = "0000:0c:00.0"
OTHER = "0000:0d:00.0"


class Clock:
    """A virtual clock."""

    time_s = 0.0

    def now_s(self):
        return self.time_s

    def sleep(self, seconds):
        self.time_s += seconds


@pytest.fixture
def smi(monkeypatch):
    """The simulated module, which `import amdsmi` finds."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    import amdsmi

    yield amdsmi
    sys.modules.pop("amdsmi", None)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def simulated(smi, clock):
    """Simulate one GPU with these settings. Returns it, and its meter."""

    def simulated(**settings):
        gpu = smi.Gpu(**settings)
        smi.reset(gpu, clock=clock.now_s)
        return gpu, AmdMeter(ADDRESS, clock.now_s, clock.sleep)

    return simulated


@pytest.fixture
def driver(tmp_path):
    """The folder of AMD's driver, which runs one GPU."""
    (tmp_path / ADDRESS).mkdir()
    return tmp_path


def used_j(meter, clock, seconds=10.0):
    before_j = meter.counter_j()
    clock.sleep(seconds)
    return meter.counter_j() - before_j


def test_power_energy_and_state_are_those_of_the_gpu(simulated, clock):
    _, meter = simulated(watts=300.0, processes=(os.getpid(), 4711))
    assert meter.name == "amd_power_current"
    assert meter.power_w() == 300
    assert used_j(meter, clock) == pytest.approx(3000)
    state = meter.state()
    assert (state.sm_clock_mhz, state.memory_clock_mhz, state.temperature_c) == (2100, 1300, 41)
    assert (state.utilisation, state.power_limit_w, state.other_processes) == (0.3, 750, 1)
    for name in ("performance_state", "power_capped_s", "thermal_throttle_s", "brake_throttle_s"):
        assert getattr(state, name) is None
        assert state.missing[name]


def test_its_sensor_is_assumed_and_has_no_known_error_of_the_gain(simulated):
    _, meter = simulated()
    assert (meter.assumed.source, meter.assumed.gain_uncertainty) == ("assumed", None)


def test_a_gpu_before_mi300_has_the_average_only(simulated):
    _, meter = simulated(current="N/A", average=1)
    assert (meter.name, meter.assumed.averaging_s) == ("amd_power_average", 1.0)
    assert list(meter.readings()) == ["amd_power_average"]
    assert meter.missing["amd_power_current"] == "amdsmi gives 'N/A' as current_socket_power"


@pytest.mark.parametrize("unsupported", [0xFFFF, 0xFFFFFFFF])
def test_what_the_c_library_writes_for_unsupported_is_no_power(simulated, unsupported):
    _, meter = simulated(current=unsupported, average=1, watts=120.0)
    assert (meter.name, meter.power_w()) == ("amd_power_average", 120)


@given(watts=st.floats(1, 2000), in_microwatts=st.booleans(), limit_w=st.integers(1, 3000))
def test_watts_and_microwatts_are_told_apart(watts, in_microwatts, limit_w):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        import amdsmi

        scale = 1_000_000 if in_microwatts else 1
        gpu = amdsmi.Gpu(watts=watts, current=scale, limit=limit_w * scale)
        clock = Clock()
        amdsmi.reset(gpu, clock=clock.now_s)
        meter = AmdMeter(ADDRESS, clock.now_s, clock.sleep)
        assert meter.power_w() == pytest.approx(watts, abs=0.5)
        assert meter.state().power_limit_w == limit_w
    sys.modules.pop("amdsmi", None)


def test_a_power_that_no_device_draws_is_refused(simulated):
    gpu, meter = simulated(watts=500.0)
    gpu.current = 1000  # neither watts nor microwatts
    with pytest.raises(MeterUnavailable, match="500000 W, which no device draws"):
        meter.power_w()


def test_the_counter_is_multiplied_by_its_resolution_under_both_names(simulated, clock):
    """ml-energy/zeus#123: until version 6.2, the counter is called `power`."""
    for name in ("energy_accumulator", "power"):
        _, meter = simulated(watts=200.0, counter=name)
        assert used_j(meter, clock) == pytest.approx(2000)


@pytest.mark.parametrize("gain", [0.0, 0.01, 1 / 15.3, 15.3, 1e6])
def test_a_counter_that_contradicts_the_power_is_not_used(simulated, gain):
    """ROCm/amdsmi#38 and #22: on some GPUs it counts in another unit, or stands still."""
    _, meter = simulated(counter_gain=gain)
    assert meter.counter_j() is None
    assert "while the sensor shows 100 W (as in ROCm/amdsmi#38)" in meter.missing["energy counter"]


def test_a_gpu_without_a_counter_says_so(simulated):
    _, meter = simulated(refuses=("energy",))
    assert meter.counter_j() is None
    assert meter.missing["energy counter"] == (
        "amdsmi_get_energy_count failed: Error code: 2 | AMDSMI_STATUS_NOT_SUPPORTED - Feature not "
        "supported"
    )


def test_a_counter_that_goes_back_is_refused(simulated, clock):
    """ROCm/amdsmi#115."""
    gpu, meter = simulated()
    gpu.counter_gain = 0.9
    with pytest.raises(MeterUnavailable, match=r"went back from .* J \(as in ROCm/amdsmi#115\)"):
        used_j(meter, clock, 0.1)


def dies(smi, clock, count=4, **second):
    """Cards with two dies, of which the first shows the power of both."""
    addresses = [f"0000:0{number}:00.0" for number in range(count)]
    shared = {"name": "AMD Instinct MI250X", "current": "N/A"}
    gpus = [
        smi.Gpu(address=address, average=1, **shared)
        if number % 2 == 0
        else smi.Gpu(address=address, **{"average": 0, "counter_gain": 0.0, **shared, **second})
        for number, address in enumerate(addresses)
    ]
    smi.reset(*gpus, clock=clock.now_s)
    return addresses


@pytest.mark.parametrize("shown", [0, "N/A"])
def test_the_second_die_of_a_card_is_a_reason_and_not_0_w(smi, clock, shown):
    """ml-energy/zeus#203."""
    addresses = dies(smi, clock, average=shown)
    meter = AmdMeter(addresses[2], clock.now_s, clock.sleep)
    assert meter.power_w() == 100
    assert meter.overlap == "covers both dies of its card, this one and amd:3"
    with pytest.raises(MeterUnavailable, match=r"first die, amd:2, covers this one as well"):
        AmdMeter(addresses[3], clock.now_s, clock.sleep)


def test_a_gpu_that_shows_0_w_is_refused(simulated):
    with pytest.raises(MeterUnavailable, match=r"no power: .*it shows 0 W, which no GPU draws"):
        simulated(watts=0.0)


def test_a_partition_of_a_card_shows_the_power_of_all(simulated):
    _, meter = simulated(partition="CPX")
    assert meter.overlap == (
        "covers all partitions of its card, which is in mode CPX: do not add them"
    )
    assert simulated()[1].overlap is None


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"limit": "N/A"}, "power_limit_w"),
        ({"limit": 0}, "power_limit_w"),
        ({"temperature": 41_000}, "temperature_c"),
        ({"temperature": "N/A"}, "temperature_c"),
        ({"clock_key": "another"}, "sm_clock_mhz"),
        ({"refuses": ("activity",)}, "utilisation"),
        ({"refuses": ("processes",)}, "other_processes"),
    ],
)
def test_what_is_unknown_of_the_state_is_null_with_the_reason(simulated, settings, name):
    state = simulated(**settings)[1].state()
    assert getattr(state, name) is None
    assert state.missing[name]


def test_a_busy_gpu_is_asked_again(simulated):
    gpu, meter = simulated()
    gpu.busy_times = 2
    assert meter.power_w() == 100
    gpu.busy_times = 3
    with pytest.raises(MeterUnavailable, match="AMDSMI_STATUS_RETRY"):
        meter.power_w()


def test_a_gpu_that_is_lost_is_a_reason(simulated):
    gpu, meter = simulated()
    gpu.lost = True
    for read in (meter.power_w, meter.counter_j):
        with pytest.raises(MeterUnavailable, match="Device Not found"):
            read()
    assert meter.state().temperature_c is None


def test_a_function_that_this_version_lacks_is_a_reason(simulated, smi, monkeypatch):
    _, meter = simulated()
    monkeypatch.delattr(smi, "amdsmi_get_gpu_activity")
    assert "this version of amdsmi has no" in meter.state().missing["utilisation"]


def test_another_address_is_refused(simulated):
    simulated()
    with pytest.raises(MeterUnavailable, match=f"no GPU at {OTHER}; there are {ADDRESS}"):
        open_meter("amd", OTHER)
    with pytest.raises(MeterUnavailable, match="no PCI address"):
        open_meter("amd", None)


def test_gpus_are_named_by_their_number(smi, clock):
    smi.reset(smi.Gpu(), smi.Gpu(address=OTHER), clock=clock.now_s)
    found, _ = every_meter()
    assert found["amd:0"] == ("amd", ADDRESS)
    assert found["amd:1"] == ("amd", OTHER)


def test_without_amd_gpus_nothing_is_listed(smi, tmp_path, monkeypatch):
    smi.reset()
    assert pci_addresses(tmp_path) == []
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert pci_addresses(tmp_path) == []


def test_a_gpu_without_the_library_is_listed_with_the_remedy(driver, monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(MeterUnavailable, match="not installed: pip install amdsmi"):
        pci_addresses(driver)


def test_gpus_that_amdsmi_does_not_show_are_a_reason(smi, driver, monkeypatch):
    smi.reset()
    with pytest.raises(MeterUnavailable, match="DRIVER_NOT_LOADED"):
        pci_addresses(driver)
    monkeypatch.setattr(smi, "amdsmi_init", lambda: None)
    with pytest.raises(MeterUnavailable, match=r"amdsmi lists no GPU.*groups render and video"):
        pci_addresses(driver)


@pytest.mark.parametrize(
    "failure", ["KeyError('libamd_smi.so')", "OSError('no file')", "AttributeError('symbol')"]
)
def test_a_library_that_cannot_be_loaded_is_a_reason(
    driver, tmp_path, monkeypatch, failure, capsys
):
    (tmp_path / "amdsmi.py").write_text(f"print('Unable to find libamd_smi.so')\nraise {failure}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    name = failure.partition("(")[0]
    with pytest.raises(MeterUnavailable, match=rf"cannot load .*{name}.*install ROCm's amd-smi"):
        pci_addresses(driver)
    assert capsys.readouterr() == ("", "")  # the sampler answers on standard output


def test_its_sensor_is_characterised_as_any_other(simulated, clock):
    gpu, meter = simulated(watts=60.0)

    class Load:
        iteration_s, until_s = 1e-3, 0.0

        def start(self, iterations):
            begin_s = max(clock.time_s, self.until_s)
            end_s = self.until_s = begin_s + iterations * self.iteration_s
            gpu.draw(400.0, begin_s)
            gpu.draw(60.0, end_s)
            return lambda: clock.time_s >= end_s

    found = characterise(meter, Load(), clock)
    reading = found["readings"]["amd_power_current"]
    assert reading["refresh_s"] == pytest.approx(0.02, rel=0.05)
    assert found["idle_power_w"] == pytest.approx(60, rel=0.02)
    assert found["counter"]["frequent_reads_change"] is False


def test_a_command_has_the_energy_of_the_gpu():
    paths = os.pathsep.join(map(str, (FOLDER, REPOSITORY / "scripts")))
    environment = {**os.environ, "PYTHONPATH": paths, "SIMULATED_AMD": '[{"watts": 250}]'}
    options = ["--json", "-d", "amd:0", "--", "sleep", "1"]
    command = [sys.executable, "-m", "opcost", "measure", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stderr)["devices"]["amd:0"]
    assert found["mean_power_w"] == pytest.approx(250, rel=0.05)
    assert found["flags"] == []
