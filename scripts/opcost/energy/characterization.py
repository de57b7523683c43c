"""Measure the properties of a device's power sensor.

    idle, no context | idle | random load | steady load | counter: rarely, often, rarely | idle
                            | refresh, averaging, lag, rise
                                          | noise, temperature slope

Properties that cannot be determined are null, with the cause in `reasons`.
"""

import random
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from opcost.energy.load import SYSTEM_CLOCK, Clock, Load
from opcost.energy.meter import Meter, power_capped
from opcost.energy.sampling import Sampler
from opcost.energy.sensor_fit import (
    changes,
    correlated_share,
    fit_response,
    noise,
    refresh_period_s,
)

_IDLE_S = 1.0
_RANDOM_S = 15.0
_MIN_SWITCH_S, _MAX_SWITCH_S = 0.03, 0.4
_STEADY_S = 15.0
_COUNTER_S = 4.0
_SETTLE_S = 3.0
_POLL_S = 0.001
_MIN_KELVIN = 3.0
_COUNTER_LOSS = 0.03

Document = dict[str, Any]


def characterise(
    meter: Meter,
    load: Load,
    clock: Clock = SYSTEM_CLOCK,
    idle_without_context_w: float | None = None,
) -> Document:
    """The properties of the meter's sensor as the document of a sensor file, in s and W.

    `idle_without_context_w` was read before anything ran on the device. Raises MeterUnavailable if
    the meter fails.
    """
    reasons: dict[str, str] = dict(meter.missing)
    if idle_without_context_w is None:
        reasons["idle_power_without_context_w"] = (
            "a processor has no context"
            if meter.reads_since_last
            else "a context was open before it could be read"
        )
    document: Document = {"meter": meter.name, "meter_reason": None}
    document["idle_power_without_context_w"] = idle_without_context_w
    document["readings"], recording = responses(meter, load, clock, reasons)
    document["temperature_slope_w_per_k"] = _steady(meter, load, clock, document, reasons)
    document["counter"] = _counter(meter, load, clock, reasons)
    # As soon after a load as in a trial: a GPU needs tens of seconds to reach its lowest power.
    document["idle_power_w"] = idle_power_w(meter, clock, meter.assumed.settle_s)
    return {**document, "reasons": reasons, "recording": recording}


def idle_power_w(meter: Meter, clock: Clock = SYSTEM_CLOCK, settle_s: float = _SETTLE_S) -> float:
    """Mean power of the idle device in watts over a second, after `settle_s` idle seconds."""
    clock.sleep(settle_s)
    meter.power_w()  # with `reads_since_last`, the next reading covers idle time only
    powers_w = []
    end_s = clock.now_s() + _IDLE_S
    while clock.now_s() < end_s:
        clock.sleep(0.02)
        powers_w.append(meter.power_w())
    return float(np.mean(powers_w))


def responses(
    meter: Meter, load: Load, clock: Clock, reasons: dict[str, str], slower: float = 1.0
) -> tuple[dict[str, Document], Document | None]:
    """Refresh period, averaging window, lag and rise time of each reading, from a random load; and
    the data of the fit: when the load was on, and the changes of each reading.

    Loads and fit suit refreshes of 20 to 100 ms: of a sensor that is `slower` by a factor, the
    data are in seconds times this factor.
    """
    if meter.reads_since_last:
        reasons[f"{meter.name}.rise_s"] = "the counter's steps are too coarse to determine it"
        known = asdict(meter.assumed)
        names = ("refresh_s", "averaging_s", "lag_s", "rise_s", "correlated_share")
        return {meter.name: {name: known[name] for name in names}}, None
    readings = meter.readings()
    times_s: list[float] = []
    values: dict[str, list[float]] = {name: [] for name in readings}

    def poll() -> None:
        times_s.append(clock.now_s() / slower)
        for name, read in readings.items():
            values[name].append(read())

    busy = _random_load(load, clock, poll, slower)
    found: dict[str, Document] = {}
    for name, watts in values.items():
        refresh_s = refresh_period_s(times_s, watts)
        response = fit_response(busy, changes(times_s, watts)) if refresh_s else None
        found[name] = {
            "refresh_s": refresh_s and slower * refresh_s,
            "averaging_s": response and slower * response.averaging_s,
            "lag_s": response and slower * response.lag_s,
            "rise_s": response and slower * response.rise_s,
            "explained": response and response.explained,
            "correlated_share": None,
        }
        if refresh_s is None:
            long_s = _RANDOM_S * slower
            reasons[f"{name}.refresh_s"] = f"the reading hardly changed within {long_s:g} s"
        elif response is None:
            reasons[f"{name}.averaging_s"] = (
                "the reading is not a moving average of the load, or is refreshed too seldom"
            )
    began_s = times_s[0]
    seen = {name: changes(times_s, watts) for name, watts in values.items()}
    recording = {
        "busy_s": [[round(moment_s - began_s, 4) for moment_s in interval] for interval in busy],
        "changes_s_w": {
            name: [[round(moment_s - began_s, 4), power_w] for moment_s, power_w in pairs]
            for name, pairs in seen.items()
        },
    }
    return found, recording


def _random_load(
    load: Load, clock: Clock, poll: Callable[[], None], slower: float
) -> list[tuple[float, float]]:
    """Switch the load on and off at random for some seconds times `slower`. Returns the intervals
    when on, divided by that.
    """
    generator = random.Random(0)
    busy = []
    end_s = clock.now_s() + _RANDOM_S * slower
    chunk = max(1, round(_MIN_SWITCH_S / 4 * slower / load.iteration_s))
    while clock.now_s() < end_s:
        begin_s = clock.now_s()
        off_s = begin_s + generator.uniform(_MIN_SWITCH_S, _MAX_SWITCH_S) * slower
        pending = [load.start(chunk)]
        while pending:
            pending = [done for done in pending if not done()]
            if clock.now_s() < off_s and len(pending) < 2:
                pending.append(load.start(chunk))
            poll()
            clock.sleep(_POLL_S * slower)
        busy.append((begin_s / slower, clock.now_s() / slower))
        on_s = clock.now_s() + generator.uniform(_MIN_SWITCH_S, _MAX_SWITCH_S) * slower
        while clock.now_s() < on_s:
            poll()
            clock.sleep(_POLL_S * slower)
    return busy


def _steady(
    meter: Meter, load: Load, clock: Clock, document: Document, reasons: dict[str, str]
) -> float | None:
    """Add the noise of the meter's reading under a steady load. Returns W/K during warm-up."""
    reading = document["readings"][meter.name]
    refresh_s = reading["refresh_s"] or meter.assumed.refresh_s
    sampler = Sampler(meter, replace(meter.assumed, refresh_s=refresh_s), load, clock)
    sampler.busy_for(meter.assumed.settle_s)
    temperatures, powers_w = [], []
    began, start_s = meter.state(), clock.now_s()
    while clock.now_s() < start_s + _STEADY_S:
        before_s = clock.now_s()
        sampler.busy_for(0.5)
        seen = sampler.refreshes(before_s, clock.now_s())
        temperatures.append(meter.state().temperature_c)
        powers_w.append(float(np.mean([refresh.power_w for refresh in seen])) if seen else np.nan)
    values = [refresh.power_w for refresh in sampler.refreshes(start_s, clock.now_s())]
    ended = meter.state()
    sampler.drain()
    variation = noise(values)
    reading["noise_relative_sd"], reading["autocorrelation"] = variation or (None, None)
    if variation is None:
        reasons[f"{meter.name}.noise_relative_sd"] = "too few refreshes under a steady load"
    elif reading["refresh_s"] and reading["averaging_s"]:
        reading["correlated_share"] = correlated_share(
            variation[1], len(values), reading["refresh_s"], reading["averaging_s"]
        )
    if power_capped(began, ended, _STEADY_S, float(np.nanmean(powers_w))):
        reasons["temperature_slope_w_per_k"] = "the power limit reduced the clock"
        return None
    known = [(t, p) for t, p in zip(temperatures, powers_w, strict=True) if t is not None and p > 0]
    kelvin = np.ptp([t for t, _ in known]) if known else 0.0
    if kelvin < _MIN_KELVIN:
        reasons["temperature_slope_w_per_k"] = (
            f"the temperature changed by only {kelvin:.0f} K"
            if known
            else "the temperature is unknown"
        )
        return None
    kelvins, watts = np.array(known).T
    return float(np.polyfit(kelvins, watts, 1)[0])


def _counter(meter: Meter, load: Load, clock: Clock, reasons: dict[str, str]) -> Document:
    """Period of the energy counter's steps, and the share lost when it is read often."""
    if meter.counter_j() is None:
        reasons["counter.refresh_s"] = meter.missing.get("energy counter", "there is no counter")
        return {"refresh_s": None, "frequent_reads_lose": None, "frequent_reads_change": None}
    sampler = Sampler(meter, meter.assumed, load, clock)
    sampler.busy_for(meter.assumed.settle_s)
    rare_before_w = _counted_w(meter, sampler, clock)
    times_s: list[float] = []
    joules: list[float] = []
    end_s = clock.now_s() + _COUNTER_S
    while clock.now_s() < end_s:
        sampler.busy_for(_POLL_S)
        times_s.append(clock.now_s())
        joules.append(_joules(meter))
    rare_after_w = _counted_w(meter, sampler, clock)
    sampler.drain()
    steps = _steps(times_s, joules)
    lost = None
    if len(steps) > 1:
        often_w = (steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0])
        lost = 1 - often_w / ((rare_before_w + rare_after_w) / 2)
    refresh_s = refresh_period_s([t for t, _ in steps], [float(n) for n in range(len(steps))])
    if refresh_s is None:
        reasons["counter.refresh_s"] = f"the counter hardly moved within {_COUNTER_S:g} s"
    return {
        "refresh_s": refresh_s,
        "frequent_reads_lose": lost,
        "frequent_reads_change": None if lost is None else abs(lost) > _COUNTER_LOSS,
    }


def _steps(times_s: list[float], joules: list[float]) -> list[tuple[float, float]]:
    """(when first seen, joules) of the counter's steps, without small changes caused by reads."""
    rises = np.diff(joules)
    least = rises.max(initial=0.0) / 4
    return [(times_s[i + 1], joules[i + 1]) for i in np.flatnonzero(rises > least)]


def _counted_w(meter: Meter, sampler: Sampler, clock: Clock) -> float:
    begin_s, begin_j = clock.now_s(), _joules(meter)
    sampler.busy_for(_COUNTER_S)
    return (_joules(meter) - begin_j) / (clock.now_s() - begin_s)


def _joules(meter: Meter) -> float:
    counter_j = meter.counter_j()
    assert counter_j is not None, "a counter that disappears raises MeterUnavailable"
    return counter_j
