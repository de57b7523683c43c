"""A processor's energy counters: what is summed, how they wrap, and why they may not be read.

The processor is its packages and their memory. Parts of packages and the platform around them are
devices of their own, because their energy is that of the processor again.

The powercap folders are real files, laid out as Linux lays out /sys/class/powercap (intel-rapl:N
for a package, intel-rapl:N:M for a part of it); the tests write the counters. Not simulated: how
often real counters move, and that other processes draw power, too.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.energy import meters
from opcost.energy.meter import MeterUnavailable
from opcost.energy.meters import every_meter, open_meter
from opcost.energy.rapl import RaplMeter, rapl_parts

RANGE_UJ = 65_532_610_987


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

    def meter(self, part=None):
        return RaplMeter(self.root, lambda: self.now_s, part)


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


@pytest.fixture
def laptop(powercap):
    """A package with parts, and a platform around it."""
    powercap.domain("intel-rapl:0", "package-0")
    powercap.domain("intel-rapl:0:0", "core")
    powercap.domain("intel-rapl:0:1", "uncore")
    powercap.domain("intel-rapl:0:2", "dram")
    powercap.domain("intel-rapl:1", "psys")


@given(
    used_uj=st.fixed_dictionaries(
        {label: st.integers(0, 400_000_000) for label in ("package-0", "dram", "core", "psys")}
    )
)
def test_each_part_counts_itself_and_the_processor_counts_none_of_them(tmp_path_factory, used_uj):
    powercap = Powercap(tmp_path_factory.mktemp("powercap"))
    names = {"package-0": "intel-rapl:0", "core": "intel-rapl:0:0", "dram": "intel-rapl:0:1"}
    names["psys"] = "intel-rapl:1"
    first_uj = RANGE_UJ - 200_000_000
    folders = {label: powercap.domain(name, label, first_uj) for label, name in names.items()}
    found = {part: powercap.meter(part) for part in (None, "core", "psys")}
    for label, folder in folders.items():
        powercap.write(folder, (first_uj + used_uj[label]) % RANGE_UJ)  # half wrap around
    assert found["core"].counter_j() == pytest.approx(used_uj["core"] / 1e6)
    assert found["psys"].counter_j() == pytest.approx(used_uj["psys"] / 1e6)
    whole_uj = used_uj["package-0"] + used_uj["dram"]
    assert found[None].counter_j() == pytest.approx(whole_uj / 1e6)


@pytest.mark.usefixtures("laptop")
def test_parts_are_listed_as_far_as_there_are_any(powercap, tmp_path):
    assert rapl_parts(powercap.root) == ["core", "uncore", "psys"]
    assert [powercap.meter(part).name for part in (None, "core")] == ["rapl", "rapl_core"]
    assert rapl_parts(tmp_path / "no counters") == []


@pytest.mark.usefixtures("laptop")
def test_the_registry_has_parts_as_devices_and_targets_none(powercap, monkeypatch):
    monkeypatch.setattr(meters, "rapl_parts", lambda: rapl_parts(powercap.root))
    monkeypatch.setattr(meters, "RaplMeter", lambda part: powercap.meter(part))
    found, _ = every_meter()
    names = [name for name, (kind, _) in found.items() if kind == "cpu"]
    assert names == ["cpu", "cpu:core", "cpu:uncore", "cpu:psys"]
    assert open_meter(*found["cpu:psys"]).name == "rapl_psys"
    assert open_meter("cpu", None).name == "rapl"  # as a target opens it


def test_parts_of_several_packages_are_summed(powercap):
    cores = []
    for number in range(2):
        powercap.domain(f"intel-rapl:{number}", f"package-{number}")
        cores.append(powercap.domain(f"intel-rapl:{number}:0", "core"))
    meter = powercap.meter("core")
    for folder in cores:
        powercap.write(folder, 250_000)
    assert meter.counter_j() == pytest.approx(0.5)


def test_a_part_that_some_packages_lack_has_no_smaller_sum(powercap):
    powercap.domain("intel-rapl:0", "package-0")
    powercap.domain("intel-rapl:1", "package-1")
    powercap.domain("intel-rapl:1:0", "core")
    with pytest.raises(MeterUnavailable, match="lists 1 counters named core, not 2"):
        powercap.meter("core")


def test_a_platform_is_named_after_the_package_that_holds_its_counter(powercap):
    powercap.domain("intel-rapl:0", "package-0")
    powercap.domain("intel-rapl:1", "package-1")
    powercap.domain("intel-rapl:2", "psys-1")
    assert rapl_parts(powercap.root) == ["psys-1"]
    assert powercap.meter("psys-1").overlap == "contains cpu: do not add the two"


@pytest.mark.usefixtures("laptop")
def test_each_part_says_how_it_overlaps_with_the_processor(powercap):
    assert powercap.meter().overlap is None
    assert powercap.meter("core").overlap == "is contained in cpu: do not add the two"
    assert powercap.meter("uncore").overlap == "is contained in cpu: do not add the two"
    assert powercap.meter("psys").overlap == "contains cpu: do not add the two"


@pytest.mark.parametrize(
    ("after_s", "energy_uj"),
    [(0.1, 3_000_000), (600.0, 43_000_000_000)],
    ids=["set back", "unread for longer than it takes to wrap around"],
)
def test_a_counter_whose_energy_is_unknown_begins_anew(powercap, after_s, energy_uj):
    package = powercap.domain("intel-rapl:0", "package-0", 0)
    meter = powercap.meter()
    powercap.now_s = 1.0
    powercap.write(package, 40_000_000)
    assert meter.counter_j() == pytest.approx(40)
    powercap.now_s += after_s
    powercap.write(package, energy_uj)
    assert meter.counter_j() == 0
    powercap.now_s += 0.1
    powercap.write(package, energy_uj + 5_000_000)
    assert meter.counter_j() == pytest.approx(5)
