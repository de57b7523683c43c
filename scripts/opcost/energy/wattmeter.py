"""Gain and offset of a power sensor, from the recording of an external wattmeter.

    wattmeter = offset + gain x sensor

The clocks of the two need not agree: the recordings are aligned by the shape of the load, first by
their correlation over all shifts, then by the shift with the smallest residuals. Each value of the
wattmeter is compared with the sensor's mean over the same time, so their rates may differ. Errors
that are close in time are alike, so intervals are those of a bootstrap over blocks (Künsch, The
jackknife and the bootstrap for general stationary observations, Annals of Statistics 17, 1989).
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opcost.errors import OpcostError
from opcost.files import lines_of
from opcost.statistics import Estimate

Numbers = NDArray[np.float64]

_GRID_S = 0.1
_FINE_S = 0.005
_CANDIDATES, _APART = 20, 5
_BLOCK_S = 5.0
_LEAST_BLOCKS = 8
_RESAMPLES = 1000
_LEAST_CORRELATION = 0.9
_RIVAL_S = 1.0
_RIVAL_ERROR, _RIVAL_ERROR_MORE = 2.0, 0.005
"""ASSUME a shift so far from the best one may be the true one as well, if the share of the variance
that it leaves unexplained is not more than so many times the best one's, and a little."""

_LEAST_RANGE, _MOST_OF = 0.2, (0.05, 0.95)
"""A load whose power, between these quantiles, varies by less than this share of its mean tells no
gain."""


@dataclass(frozen=True)
class Power:
    """Watts at ascending times in seconds; each is the mean since the value before it."""

    times_s: Numbers
    watts: Numbers


@dataclass(frozen=True)
class Calibration:
    """Gain and offset with their 95 % intervals. The wattmeter's clock is `shift_s` ahead of the
    sensor's; `correlation` is that of what was compared. After `repeats_s`, the load repeats itself
    so well that the clock may be off by as much; None if it does not.
    """

    gain: Estimate
    offset_w: Estimate
    shift_s: float
    correlation: float
    values: int
    repeats_s: float | None = None

    @property
    def gain_uncertainty(self) -> float:
        """The largest relative error of uncorrected readings that the interval allows."""
        limits = (self.gain.low, self.gain.high)
        return max(abs(1 / each - 1) for each in limits if each is not None)


def read_wattmeter(path: Path) -> Power:
    """A CSV file with a time (seconds, or ISO 8601) and watts in its first two columns.

    Raises OpcostError for another file.
    """
    times_s, watts = [], []
    with lines_of(path, newline="", errors="replace") as file:
        for number, row in enumerate(csv.reader(file), 1):
            try:
                moment_s, power_w = _seconds(row[0]), float(row[1])
            except (ValueError, IndexError) as error:
                if number == 1 or not row:  # titles
                    continue
                raise OpcostError(
                    f"{path}, line {number}: {','.join(row)!r} is no time and power: give seconds "
                    "or ISO 8601, and watts, in the first two columns"
                ) from error
            if not (math.isfinite(moment_s) and math.isfinite(power_w)):
                raise OpcostError(
                    f"{path}, line {number}: {row[:2]} is not finite: remove the line"
                )
            times_s.append(moment_s)
            watts.append(power_w)
    found = Power(np.array(times_s), np.array(watts))
    if len(times_s) < 2 or not (np.diff(found.times_s) > 0).all():
        raise OpcostError(f"{path} has {len(times_s)} values; give two or more, ascending in time")
    return found


def calibrate(meter: Power, sensor: Power, seed: int = 0) -> Calibration:
    """The sensor's gain and offset. Raises OpcostError if the two do not show the same load."""
    per_block = max(1, round(_BLOCK_S / float(np.median(np.diff(meter.times_s)))))
    least = _LEAST_BLOCKS * per_block
    found = {
        each: _correlation(meter, sensor, each, least) for each in _rough_shifts(meter, sensor)
    }
    rough = max(found, key=lambda each: found[each])
    shift_s = _refined(meter, sensor, rough)
    first, second = _pairs(meter, sensor, shift_s)
    if len(first) < least:
        raise OpcostError(
            f"wattmeter and sensor share {len(first)} values; give {least}, which are "
            f"{_LEAST_BLOCKS * _BLOCK_S:.0f} s"
        )
    low_w, high_w = np.quantile(second, _MOST_OF)
    spread = float(high_w - low_w) / max(float(second.mean()), 1e-9)
    if spread < _LEAST_RANGE:
        raise OpcostError(
            f"power varies by {spread:.0%} of its mean in the recording, which tells no gain: "
            "record a load that begins and ends several times"
        )
    correlation = float(np.corrcoef(first, second)[0, 1])
    if correlation < _LEAST_CORRELATION:
        raise OpcostError(
            f"wattmeter and sensor do not show the same load (correlation {correlation:.2f}, at "
            f"least {_LEAST_CORRELATION} is needed): record both at once, under a load that changes"
        )
    gain, offset_w = _line(first, second)
    drawn = np.array([*_resampled(first, second, per_block, seed)])
    (gain_low, offset_low), (gain_high, offset_high) = np.quantile(drawn, [0.025, 0.975], axis=0)
    return Calibration(
        Estimate(gain, float(gain_low), float(gain_high)),
        Estimate(offset_w, float(offset_low), float(offset_high)),
        shift_s,
        correlation,
        len(first),
        _repeats_s(found, rough, float(np.median(np.diff(meter.times_s)))),
    )


def _repeats_s(correlations: Mapping[float, float], best_s: float, period_s: float) -> float | None:
    """How far from the best shift the next one is that may be the true one as well, if any."""
    most = _RIVAL_ERROR * (1 - correlations[best_s] ** 2) + _RIVAL_ERROR_MORE
    rivals_s = [
        abs(shift_s - best_s)
        for shift_s, correlation in correlations.items()
        if abs(shift_s - best_s) > max(_RIVAL_S, 2 * period_s)
        and correlation > 0
        and 1 - correlation**2 <= most
    ]
    return min(rivals_s, default=None)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _means(power: Power, edges_s: Numbers) -> Numbers:
    """Mean watts between edges within the recording."""
    lengths = np.diff(power.times_s, prepend=power.times_s[0])
    joules = np.cumsum(power.watts * lengths)
    return np.diff(np.interp(edges_s, power.times_s, joules)) / np.diff(edges_s)


def _rough_shifts(meter: Power, sensor: Power) -> list[float]:
    """The shifts at which the two correlate most, to the width of a grid."""
    curves = []
    for power in (meter, sensor):
        edges_s = np.arange(power.times_s[0], power.times_s[-1], _GRID_S)
        means = _means(power, edges_s)
        curves.append(means - means.mean())
    first, second = curves
    size = 1 << int(len(first) + len(second)).bit_length()
    spectrum = np.fft.rfft(first, size) * np.conj(np.fft.rfft(second, size))
    together = np.fft.irfft(spectrum, size)
    ahead_s = float(meter.times_s[0] - sensor.times_s[0])
    found: list[int] = []
    for place in np.argsort(together)[::-1]:
        steps = int(place) if place < len(first) else int(place) - size
        if all(abs(steps - other) > _APART for other in found):
            found.append(steps)
        if len(found) == _CANDIDATES:
            break
    return [ahead_s + steps * _GRID_S for steps in found]


def _correlation(meter: Power, sensor: Power, shift_s: float, least: int) -> float:
    """That of the values that the two share under a shift; of too few, less than of any others."""
    first, second = _pairs(meter, sensor, shift_s)
    if len(first) < least or not np.ptp(first) or not np.ptp(second):
        return -2.0 + len(first) / (least + len(first) + 1)
    return float(np.corrcoef(first, second)[0, 1])


def _refined(meter: Power, sensor: Power, rough_s: float) -> float:
    """The shift with the smallest residuals near a rough one."""
    reach_s = max(2 * _GRID_S, float(np.median(np.diff(meter.times_s))))
    candidates = rough_s + np.arange(-reach_s, reach_s + _FINE_S, _FINE_S)
    return float(min(candidates, key=lambda each: _misfit(meter, sensor, float(each))))


def _misfit(meter: Power, sensor: Power, shift_s: float) -> float:
    first, second = _pairs(meter, sensor, shift_s)
    if len(first) < 3 or not np.ptp(second):
        return math.inf
    gain, offset_w = _line(first, second)
    return float(np.mean((first - offset_w - gain * second) ** 2))


def _pairs(meter: Power, sensor: Power, shift_s: float) -> tuple[Numbers, Numbers]:
    """Values of the wattmeter, and the sensor's means over the same times."""
    edges_s = meter.times_s - shift_s
    inside = (edges_s >= sensor.times_s[0]) & (edges_s <= sensor.times_s[-1])
    places = np.flatnonzero(inside)
    if len(places) < 2:
        return np.empty(0), np.empty(0)
    return meter.watts[places[1:]], _means(sensor, edges_s[places])


def _line(first: Numbers, second: Numbers) -> tuple[float, float]:
    gain, offset_w = np.polyfit(second, first, 1)
    return float(gain), float(offset_w)


def _resampled(
    first: Numbers, second: Numbers, per_block: int, seed: int
) -> Sequence[tuple[float, float]]:
    generator = np.random.default_rng(seed)
    blocks = math.ceil(len(first) / per_block)
    found = []
    for _ in range(_RESAMPLES):
        starts = generator.integers(0, len(first) - per_block + 1, blocks)
        places = (starts[:, None] + np.arange(per_block)).ravel()[: len(first)]
        found.append(_line(first[places], second[places]))
    return found
