"""A processor's energy counters: what is summed, how they wrap, and why they may not be read.

The powercap folders are real files, laid out as Linux lays out /sys/class/powercap (intel-rapl:N
for a package, intel-rapl:N:M for a part of it); the tests write the counters. Not simulated: how
often real counters move, and that other processes draw power, too.
"""

import os

import pytest
from opcost.energy.meter import MeterUnavailable
from opcost.energy.rapl import RaplMeter

RANGE_UJ = 1_000_000


class Powercap:
    def __init__(self, root):
        self.root = root
        self.now_s = 0.0

    def domain(self, name, label, energy_uj=0):
        folder = self.root / name.rpartition(":")[0] / name if name.count(":") == 2 else None
        folder = folder or self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"{label}\n")
        (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
        self.write(folder, energy_uj)
        return folder

    def write(self, folder, energy_uj):
        (folder / "energy_uj").write_text(f"{energy_uj}\n")

    def meter(self):
        return RaplMeter(self.root, lambda: self.now_s)


@pytest.fixture
def powercap(tmp_path):
    return Powercap(tmp_path)


def test_packages_and_their_memory_are_summed_and_parts_of_them_are_not(powercap):
    counted = [
        powercap.domain("intel-rapl:0", "package-0"),
        powercap.domain("intel-rapl:1", "package-1"),
        powercap.domain("intel-rapl:0:2", "dram"),
    ]
    parts = [
        powercap.domain("intel-rapl:0:0", "core"),
        powercap.domain("intel-rapl:0:1", "uncore"),
        powercap.domain("intel-rapl:2", "psys"),
    ]
    meter = powercap.meter()
    powercap.now_s = 0.1
    for folder in counted + parts:
        powercap.write(folder, 500_000)
    assert meter.power_w() == pytest.approx(3 * 0.5 / 0.1)
    assert meter.counter_j() == pytest.approx(1.5)
    assert "memory of intel-rapl:1" in meter.missing


def test_power_is_the_mean_since_the_reading_before(powercap):
    package = powercap.domain("intel-rapl:0", "package-0", 100_000)
    meter = powercap.meter()
    for now_s, energy_uj, power_w in ((0.5, 200_000, 0.2), (0.6, 260_000, 0.6)):
        powercap.now_s = now_s
        powercap.write(package, energy_uj)
        assert meter.power_w() == pytest.approx(power_w)


def test_a_counter_that_wrapped_around_goes_on(powercap):
    package = powercap.domain("intel-rapl:0", "package-0", RANGE_UJ - 50_000)
    meter = powercap.meter()
    powercap.write(package, 150_000)
    assert meter.counter_j() == pytest.approx(0.2)


def test_a_machine_without_counters_says_so(tmp_path):
    with pytest.raises(MeterUnavailable, match="lists no RAPL package"):
        RaplMeter(tmp_path / "powercap")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_counters_that_only_root_may_read_come_with_the_remedy(powercap):
    package = powercap.domain("intel-rapl:0", "package-0")
    (package / "energy_uj").chmod(0)
    with pytest.raises(MeterUnavailable, match=r"chmod a\+r .*udev rule"):
        powercap.meter()


def test_a_refused_counter_comes_with_the_remedy(powercap, monkeypatch):
    package = powercap.domain("intel-rapl:0", "package-0")

    def refuse(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(package), "read_text", refuse)
    monkeypatch.setattr("opcost.energy.rapl.first_line", lambda _: "package-0")
    with pytest.raises(MeterUnavailable, match=r"chmod a\+r .*udev rule"):
        powercap.meter()


def test_a_counter_that_vanishes_is_a_reason(powercap):
    package = powercap.domain("intel-rapl:0", "package-0")
    meter = powercap.meter()
    (package / "energy_uj").unlink()
    with pytest.raises(MeterUnavailable, match="cannot be read"):
        meter.counter_j()


def test_it_tells_nothing_but_energy_and_says_so(powercap):
    powercap.domain("intel-rapl:0", "package-0")
    state = powercap.meter().state()
    assert state.sm_clock_mhz is None
    assert "sm_clock_mhz" in state.missing
