"""The trial stops when it knows enough, or when its budget is spent, and says which."""

import dataclasses
import itertools
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from opcost.devices.device import BlockTime, nothing
from opcost.devices.disturbance import Watch
from opcost.devices.kinds import KINDS
from opcost.energy.meter import MeterUnavailable
from opcost.errors import OpcostError
from opcost.measuring.trial import run_trial

from tests.quick_measurement import QUICK
from tests.stations import station_of


class SimulatedDevice:
    """A device with a virtual clock: an iteration takes what `durations_s` says, in turn.

    Simulates time only; nothing is computed, and no power is drawn.
    """

    def __init__(
        self, durations_s, kind="cpu", host_share=1.0, rotation=1, in_use=False, busy_host=None
    ):
        self.rotation, self.in_use = rotation, in_use
        self.kind = KINDS[kind]
        self.now_s = 0.0
        self.iterations = 0
        self.paused = True
        """Whether its host has just waited for it, and is therefore slower."""
        self._durations_s = (
            durations_s if isinstance(durations_s, Iterator) else itertools.cycle(durations_s)
        )
        self._host_share = host_share
        self.busy_host = busy_host or Watch()

    def run(self, iterations):
        self.iterations += iterations
        self.now_s += sum(next(self._durations_s) for _ in range(iterations))

    def time(self, work, lead=nothing):
        self.paused = True
        return self._timed(work, lead)

    def _timed(self, work, lead):
        lead()
        start_s = self.now_s
        work()
        return BlockTime(self.now_s - start_s, (self.now_s - start_s) * self._host_share)

    def host_watch(self, baseline_s):
        return self.busy_host

    def time_in_use(self, lead, work):
        batch = self._timed(work, lead)
        slower, self.paused = (1.1 if self.paused else 1.0), False
        return dataclasses.replace(batch, device_s=slower * batch.device_s)

    def synchronise(self):
        pass


class IdleDevice(SimulatedDevice):
    """A device whose host launches nothing."""

    def _timed(self, work, lead):
        return dataclasses.replace(super()._timed(work, lead), device_s=0.0)


def no_meter():
    raise MeterUnavailable("simulated: no meter")


@pytest.fixture
def trial():
    def trial(
        durations_s,
        settings=QUICK,
        watch=None,
        open_meter=no_meter,
        device_class=SimulatedDevice,
        **device_options,
    ):
        device = device_class(durations_s, **device_options)
        clock = SimpleNamespace(now_s=lambda: device.now_s, sleep=lambda seconds: None)
        station = station_of(device, settings, watch, open_meter, clock=clock)
        return run_trial(device, station, settings), device

    return trial


def test_a_steady_workload_converges_at_once(trial):
    result, _ = trial([2e-6])
    assert result.time.converged
    assert result.time.estimate.value == pytest.approx(2e-6)
    assert len(result.time.block_times_s) == QUICK.min_batches
    assert result.flags == []


def test_a_whole_models_host_is_timed_apart_from_it(trial):
    of_operator, _ = trial([2e-6], kind="cuda", host_share=1.5)
    assert of_operator.time.host.value == pytest.approx(3e-6)
    assert of_operator.flags == ["launch_bound"]
    of_model, _ = trial([2e-6], kind="cuda", host_share=1.5, in_use=True)
    assert of_model.time.estimate.value == pytest.approx(2e-6)
    assert of_model.time.host.value == pytest.approx(3e-6)
    assert of_model.flags == []


def test_a_whole_model_is_not_timed_just_after_a_pause(trial):
    result, _ = trial([2e-6], kind="cuda", in_use=True)
    assert max(result.time.block_times_s) == pytest.approx(2e-6)


def test_what_interrupts_the_host_of_a_whole_model_disturbs_the_model(trial):
    busy = Watch()
    looks = itertools.cycle([True, False])
    busy.look = lambda: next(looks)
    alone, _ = trial([2e-6], kind="cuda", busy_host=busy)
    with_host, _ = trial([2e-6], kind="cuda", busy_host=busy, in_use=True)
    assert all(alone.time.undisturbed)
    assert with_host.time.undisturbed[:4] == (False, True, False, True)


def test_what_gives_the_device_nothing_to_do_has_no_time(trial):
    with pytest.raises(OpcostError, match="no kernel was launched"):
        trial([2e-6], kind="cuda", device_class=IdleDevice)


def test_a_batch_lasts_as_long_as_was_asked_for(trial):
    result, _ = trial([2e-6], dataclasses.replace(QUICK, batch_s=0.01))
    assert result.time.block_iterations == pytest.approx(5000, rel=0.01)


def test_a_restless_workload_stops_at_its_budget_and_says_so(trial):
    settings = dataclasses.replace(QUICK, batch_s=1e-6, time_relative_ci=0.01, max_time_s=1e-3)
    result, _ = trial([1e-6, 3e-6], settings)
    assert not result.time.converged
    assert result.time.stop_reason == "time_budget"
    assert sum(result.time.block_times_s) == pytest.approx(1e-3, rel=0.05)


def test_timing_lasts_at_least_as_long_as_was_asked_for(trial):
    result, _ = trial([1e-4], dataclasses.replace(QUICK, min_time_s=0.02))
    batches = result.time
    assert sum(batches.block_times_s) * batches.block_iterations >= 0.02 * 0.999


class SharedCore(Watch):
    """Simulates a core whose other tenant comes and goes every five batches, and slows it by 1.6.

    Iterating it gives the duration of the next iteration.
    """

    def __init__(self):
        self.looks = 0

    @property
    def shared(self):
        return self.looks // 5 % 2 == 1

    def look(self):
        alone = not self.shared
        self.looks += 1
        return alone and not self.shared

    def __iter__(self):
        return self

    def __next__(self):
        return 1.6e-5 if self.shared else 1e-5


def test_disturbed_batches_are_kept_and_do_not_count(trial):
    core = SharedCore()
    settings = dataclasses.replace(QUICK, batch_s=1e-6, min_time_s=1e-3, max_time_s=2e-3)
    time = trial(core, settings, watch=core)[0].time
    assert time.estimate.value == pytest.approx(1e-5)
    assert time.estimate.high == pytest.approx(1e-5)
    assert max(time.block_times_s) == pytest.approx(1.6e-5)
    assert max(itertools.compress(time.block_times_s, time.undisturbed)) == pytest.approx(1e-5)


def test_a_device_that_is_never_quiet_is_flagged_and_measured_all_the_same(trial):
    core = SharedCore()
    core.look = lambda: False
    result, _ = trial([1e-5], watch=core)
    assert result.time.stop_reason == "time_budget"
    assert result.time.estimate.value == pytest.approx(1e-5)
    assert result.flags == ["disturbed"]


def test_too_few_undisturbed_batches_are_flagged_though_they_are_the_most(trial):
    core = SharedCore()
    looks = itertools.chain([True] * 5, itertools.cycle([True, True, False]))
    core.look = lambda: next(looks)
    settings = dataclasses.replace(QUICK, batch_s=1.0, min_batches=12, max_time_s=1.0)
    result, _ = trial([1.0], settings, watch=core)
    assert len(result.time.block_times_s) == 12
    assert sum(result.time.undisturbed) > 6
    assert result.flags == ["disturbed"]


def test_a_trial_that_was_never_left_alone_is_not_repeated_for_the_next_round_does_it(trial):
    core = SharedCore()
    core.look = lambda: False
    settings = dataclasses.replace(QUICK, max_repeats=2, repeat_pause_s=0.0)
    result, _ = trial([1e-5], settings, watch=core)
    assert (result.repeats, result.flags) == (0, ["disturbed"])


def test_all_operands_are_used_once_before_any_is_timed_if_that_is_quick(trial):
    settings = dataclasses.replace(QUICK, batch_s=1e-5)
    result, _ = trial([5e-5] * 1000 + [1e-5] * 100_000, settings, rotation=1000)
    assert max(result.time.block_times_s) == pytest.approx(1e-5)


def test_a_pass_over_all_operands_that_takes_long_is_cut_short(trial):
    settings = dataclasses.replace(QUICK, batch_s=0.01, max_time_s=0.1)
    result, device = trial([0.03], settings, rotation=1000)
    calibrating, warming_up, timed = 2, 34, len(result.time.block_times_s)
    assert device.iterations == calibrating + warming_up + timed


def test_warm_up_is_not_measured(trial):
    settings = dataclasses.replace(QUICK, warm_up_s=1.0, batch_s=0.01)
    result, _ = trial([1.0] * 3 + [1e-3] * 100_000, settings)
    assert max(result.time.block_times_s) == pytest.approx(1e-3)


def test_a_drifting_workload_is_flagged(trial):
    settings = dataclasses.replace(
        QUICK, batch_s=1e-6, min_batches=40, min_time_s=4e-4, max_time_s=5e-4
    )
    durations_s = [1e-5 * (1 + 0.01 * step) for step in range(60)]
    assert trial(durations_s, settings)[0].flags == ["drifting"]


@pytest.mark.parametrize(("share", "flags"), [(1.01, ["launch_bound"]), (0.3, [])])
def test_an_operator_whose_host_is_slower_than_the_gpu_is_flagged(trial, share, flags):
    assert trial([1e-5], kind="cuda", host_share=share)[0].flags == flags


def test_without_a_meter_there_is_a_reason_and_no_power(trial):
    result, _ = trial([1e-5])
    assert (result.power, result.energy) == (None, None)
    assert result.power_reason == "simulated: no meter"


class DisturbedReference(Watch):
    """Simulates a core that is quicker now than when its baseline was measured."""

    def lower_baseline_s(self):
        return 1e-3


def test_a_core_that_was_slower_when_the_study_began_is_flagged(trial):
    result, _ = trial(itertools.repeat(1e-5), watch=DisturbedReference())
    assert result.flags == ["sentinel_quicker"]
