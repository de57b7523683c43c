"""Fit the properties of a sensor to its readings. Times are in seconds.

A reading is modelled as offset + gain x mean(power over [t - lag - width, t - lag]), where power
follows the load exponentially. The least-squares fit starts from the best point of a grid.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, signal

_GRID_S = 0.001
_WIDTHS_S = (0.01, 0.02, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5)
_LAGS_S = (0.0, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2)
_RISES_S = (0.0, 0.005, 0.015, 0.04, 0.1)
_BEFORE_S = max(_WIDTHS_S) + max(_LAGS_S)
"""For this time, a reading may contain power from before the first interval, which is unknown."""

_MIN_CHANGES = 10
_MIN_EXPLAINED = 0.9
_TO_ONE_PERCENT = math.log(100)


@dataclass(frozen=True)
class Response:
    """Boxcar width and lag of a reading, 99 % rise time of power, and R^2 of the fit."""

    averaging_s: float
    lag_s: float
    rise_s: float
    explained: float


def changes(times_s: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """(when first seen, value) of each value that differs from the previous one."""
    return [
        (times_s[index], values[index])
        for index in range(1, len(values))
        if values[index] != values[index - 1]
    ]


def refresh_period_s(times_s: Sequence[float], values: Sequence[float]) -> float | None:
    """The refresh period, or None if the value hardly changed.

    Refreshes to an equal value are invisible, so gaps between changes are multiples of the period;
    the search starts from the shorter gaps.
    """
    moments = [time_s for time_s, _ in changes(times_s, values)]
    if len(moments) < _MIN_CHANGES:
        return None
    gaps = np.diff(moments)
    period = float(np.quantile(gaps, 0.2))
    for _ in range(10):
        counts = np.maximum(1, np.round(gaps / period))
        period = float(gaps.sum() / counts.sum())
    return period


def fit_response(
    busy: Sequence[tuple[float, float]], readings: Sequence[tuple[float, float]]
) -> Response | None:
    """The response of readings (when first seen, watts) to a load that was on in the intervals
    `busy`, or None if they do not follow it. The first 1.7 s are left out.
    """
    known = [reading for reading in readings if reading[0] >= busy[0][0] + _BEFORE_S]
    if len(known) < _MIN_CHANGES:
        return None
    times, values = map(np.array, zip(*known, strict=True))
    grid = np.arange(busy[0][0], max(times[-1], busy[-1][1]) + _GRID_S, _GRID_S)
    load = np.zeros(len(grid))
    for begin_s, end_s in busy:
        load[(grid >= begin_s) & (grid < end_s)] = 1.0
    cumulated: dict[float, np.ndarray] = {}

    def unexplained(width: float, lag: float, tau: float) -> float:
        tau = round(max(0.0, tau), 4)
        if width < _GRID_S or lag < 0:
            return 1.0 + abs(min(width, lag, 0.0))
        if tau not in cumulated:
            kept = math.exp(-_GRID_S / tau) if tau > 0 else 0.0
            power = signal.lfilter([1 - kept], [1, -kept], load)
            cumulated[tau] = np.concatenate([[0.0], np.cumsum(power) * _GRID_S])[:-1]
        ends = np.interp(times - lag, grid, cumulated[tau])
        starts = np.interp(times - lag - width, grid, cumulated[tau])
        explained = np.corrcoef((ends - starts) / width, values)[0, 1] ** 2
        return 1.0 - float(explained) if math.isfinite(explained) else 1.0

    if np.std(values) == 0:
        return None
    best = min(
        ((width, lag, tau) for width in _WIDTHS_S for lag in _LAGS_S for tau in _RISES_S),
        key=lambda found: unexplained(*found),
    )
    refined = optimize.minimize(
        lambda found: unexplained(*found),
        best,
        method="Nelder-Mead",
        options={"xatol": 5e-4, "fatol": 1e-6, "maxiter": 200},
    )
    width, lag, tau = (float(found) for found in refined.x)
    explained = 1.0 - float(refined.fun)
    if explained < _MIN_EXPLAINED:
        return None
    return Response(width, max(0.0, lag), max(0.0, tau) * _TO_ONE_PERCENT, explained)


def noise(values: Sequence[float]) -> tuple[float, float] | None:
    """Relative standard deviation and lag-1 autocorrelation of refreshes without their trend."""
    if len(values) < _MIN_CHANGES:
        return None
    rest = signal.detrend(np.array(values))
    square = float(rest @ rest)
    if np.ptp(values) == 0:
        return 0.0, 0.0
    deviation = math.sqrt(square / (len(values) - 2)) / float(np.mean(values))
    return deviation, float(rest[1:] @ rest[:-1]) / square


def correlated_share(autocorrelation: float, count: int, refresh_s: float, width_s: float) -> float:
    """The upper 95 % bound of the share of variance that overlapping windows have in common.

    If all of it were common, adjacent readings would have a correlation of 1 - refresh/width.
    """
    expected = 1 - refresh_s / width_s
    if expected <= 0:
        return 1.0
    return min(1.0, max(0.0, (autocorrelation + 1.645 / math.sqrt(count)) / expected))
