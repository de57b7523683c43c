"""Keep a device busy and read its meter, from one thread.

Work is enqueued in small chunks, two of them in flight, so that the device never idles; between
chunks the meter is read, four times per refresh. A second thread would compete for the interpreter
with the thread that launches, and slow down the load.
"""

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from opcost.energy.load import Clock, Done, Load
from opcost.energy.meter import Meter
from opcost.energy.sensor import Sensor

_POLLS_PER_REFRESH = 4
_CHUNKS_PER_REFRESH = 8
_IN_FLIGHT = 2
_SEEN_WITHIN_S = 1e-3
"""The end of long iterations is seen within this time: a few of them give the pace."""


@dataclass(frozen=True)
class Refresh:
    """One value of a sensor, and the time when it was first seen.

    `periods` is the number of refresh periods between its first and last reading, at least 1.
    """

    time_s: float
    power_w: float
    periods: int


class Sampler:
    """Drives a load and keeps every reading of the meter, with its time."""

    def __init__(self, meter: Meter, sensor: Sensor, load: Load, clock: Clock) -> None:
        self.clock = clock
        self.times_s: list[float] = []
        self.powers_w: list[float] = []
        self._meter = meter
        self._sensor = sensor
        self._load = load
        polls = 1 if meter.reads_since_last else _POLLS_PER_REFRESH
        self._interval_s = sensor.refresh_s / polls
        self._chunk = max(1, round(sensor.refresh_s / _CHUNKS_PER_REFRESH / load.iteration_s))
        self._in_flight: deque[tuple[Done, int]] = deque()
        # The first reading of a meter with `reads_since_last` would cover time before this.
        self._due_s = clock.now_s() + (self._interval_s if meter.reads_since_last else 0.0)
        self._done: list[tuple[float, int]] = [(clock.now_s(), 0)]

    def rest(self, seconds: float) -> None:
        """Read the meter for that long, while the device finishes its work and idles."""
        end_s = self.clock.now_s() + seconds
        while (left_s := end_s - self.clock.now_s()) > 0:
            self._poll()
            self._retire()
            self.clock.sleep(max(0.0, min(left_s, self._due_s - self.clock.now_s())))

    def drain(self, seen_within_s: float = math.inf) -> None:
        """Wait until the device has finished all work, noticing its end within some time."""
        while self._in_flight:
            self._retire()
            if self._in_flight:
                self._wait(seen_within_s)

    def busy_until(self, stop: Callable[[], bool]) -> None:
        """Keep the device busy and read its meter until `stop`; it is then still busy."""
        while not stop():
            while len(self._in_flight) < _IN_FLIGHT and not stop():
                self._start(self._chunk)
                self._poll()
                self._retire()
            if len(self._in_flight) == _IN_FLIGHT:
                self._wait()
                self._retire()

    def busy_for(self, seconds: float) -> None:
        """Keep the device busy for that long."""
        end_s = self.clock.now_s() + seconds
        self.busy_until(lambda: self.clock.now_s() >= end_s)

    def run(self, iterations: int) -> None:
        """Run exactly that many iterations, and wait for them."""
        for first in range(0, iterations, self._chunk):
            self._start(min(self._chunk, iterations - first))
            while len(self._in_flight) >= _IN_FLIGHT:
                self._retire()
                if len(self._in_flight) >= _IN_FLIGHT:
                    self._wait(_SEEN_WITHIN_S)
        self.drain(_SEEN_WITHIN_S)

    def refreshes(self, start_s: float, end_s: float) -> list[Refresh]:
        """The refreshes between two times, or the value shown throughout if there was none.

        With `reads_since_last`, the readings that lie completely between them.
        """
        first = bisect_left(self.times_s, start_s)
        last = bisect_right(self.times_s, end_s)
        refresh_s = self._sensor.refresh_s
        if self._meter.reads_since_last:
            times_s, powers_w = self.times_s[first:last], self.powers_w[first:last]
            lengths = [later - earlier for earlier, later in pairwise(times_s)]
            periods = [max(1, round(length / refresh_s)) for length in lengths]
            return list(map(Refresh, times_s[1:], powers_w[1:], periods))
        first = max(0, first - 1)
        found = _distinct(self.times_s[first:last], self.powers_w[first:last], refresh_s)
        return found if len(found) < 2 or found[0].time_s >= start_s else found[1:]

    def pace_s(self, start_s: float, end_s: float) -> float | None:
        """Seconds per iteration between two times, or None if too few chunks finished then.

        Between the moments at which chunks were seen to be done, progress is taken to be even.
        """
        self._retire()
        times_s, done = zip(*self._done, strict=True)
        if bisect_right(times_s, end_s) - bisect_left(times_s, start_s) < 2:
            return None
        within_s = np.clip([start_s, end_s], times_s[0], times_s[-1])
        (length_s,), (iterations,) = np.diff(within_s), np.diff(np.interp(within_s, times_s, done))
        return float(length_s / iterations)

    def _poll(self) -> None:
        now_s = self.clock.now_s()
        if now_s < self._due_s:
            return
        power_w = self._meter.power_w()
        self.times_s.append(self.clock.now_s())
        self.powers_w.append(power_w)
        self._due_s = max(self._due_s + self._interval_s, now_s + self._interval_s / 2)

    def _start(self, iterations: int) -> None:
        if not self._in_flight:  # no progress in a pause
            self._done.append((self.clock.now_s(), self._done[-1][1]))
        self._in_flight.append((self._load.start(iterations), iterations))

    def _retire(self) -> None:
        while self._in_flight and self._in_flight[0][0]():
            _, iterations = self._in_flight.popleft()
            self._done.append((self.clock.now_s(), self._done[-1][1] + iterations))

    def _wait(self, at_most_s: float = math.inf) -> None:
        self._poll()
        chunk_s = self._chunk * self._load.iteration_s
        due_s = self._due_s - self.clock.now_s()
        self.clock.sleep(max(1e-5, min(chunk_s / 4, due_s, at_most_s)))


def _distinct(
    times_s: Sequence[float], powers_w: Sequence[float], refresh_s: float
) -> list[Refresh]:
    found: list[Refresh] = []
    first = 0
    for index in range(1, len(times_s) + 1):
        if index < len(times_s) and powers_w[index] == powers_w[first]:
            continue
        # Four polls of one period span three quarters of it.
        seen_s = times_s[index - 1] - times_s[first]
        periods = max(1, round(seen_s / refresh_s + 1 / _POLLS_PER_REFRESH))
        found.append(Refresh(times_s[first], powers_w[first], periods))
        first = index
    return found
