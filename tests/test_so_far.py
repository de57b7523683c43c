"""The energy of what goes on, part by part."""

import pytest
from opcost import power
from opcost.power import so_far
from opcost.power.device_energy import DeviceEnergy
from opcost.power.so_far import SoFar
from opcost.statistics import Estimate

WATTS, UNCERTAIN_J = 200.0, 5.0


class SteadyMonitor:
    """A device that draws constant power; each answer is off by as much, and notes what it read."""

    def __init__(self):
        self.parts_s = []
        self.reason = None

    def energy(self, start_s, end_s):
        self.parts_s.append(end_s - start_s)
        joules = WATTS * (end_s - start_s)
        energy = Estimate(joules, joules - UNCERTAIN_J, joules + UNCERTAIN_J)
        if self.reason:
            return {"cuda:0": DeviceEnergy.without(self.reason)}
        return {"cuda:0": DeviceEnergy(energy, None, end_s - start_s, joules + 9, 3, ("stuck",))}


def test_only_the_last_minute_is_read_again_and_the_sum_is_that_of_all():
    monitor = SteadyMonitor()
    since = SoFar(monitor, 100.0)
    for second in range(1, 3601):
        [found] = since.energy(100.0 + second).values()
    assert max(monitor.parts_s) <= so_far._PART_S
    assert found.energy.value == WATTS * 3600
    assert found.time_s == 3600
    assert found.energy.high - found.energy.value == UNCERTAIN_J * 60
    assert (found.changes, found.at_most_j, found.flags) == (180, WATTS * 3600 + 540, ("stuck",))


def test_after_a_part_without_energy_the_sum_has_none_for_that_reason():
    monitor = SteadyMonitor()
    since = SoFar(monitor, 0.0)
    since.energy(61.0)
    monitor.reason = "lost"
    since.energy(122.0)
    monitor.reason = None
    [found] = since.energy(130.0).values()
    assert (found.energy, found.reason) == (None, "lost")


@pytest.mark.usefixtures("card_of_sampler")
def test_a_line_about_a_window_in_progress_is_no_edge_of_it():
    """The program does nothing else there, so nothing may be hidden around it."""
    with power.Monitor(["cuda:0"]) as monitor:
        window = power.start("work", monitor=monitor)
        window.line()
        assert list(monitor._edges_s) == [window._start_s]
        window.stop()
        assert list(monitor._edges_s) == [window._start_s, window._end_s]
