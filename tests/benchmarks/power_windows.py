"""How far is the energy of windows from the truth? On drawn cards, beside a polling loop.

Draws simulated cards (tests/simulated_nvml) and loads that switch at random moments, and puts
windows of several lengths at random moments. A polling loop, as tools around `nvidia-smi` have it,
multiplies its mean reading by the time of the window; other tools subtract two readings of the
counter. With `--zeus`, ZeusMonitor, which must be installed, has the same windows on the same cards
that have a counter; on others, it polls in another process, where the simulated clock is not.

Then come loops, whose windows begin and end with their load, with pauses too short for some of the
sensors. The last kind is a processor with a powercap tree (tests/simulated_powercap.py), which is
read at the edges of windows.

    PYTHONPATH=scripts python -m tests.benchmarks.power_windows [--draws 60] [--zeus]
"""

import argparse
import random
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from opcost.energy.rapl import RaplMeter
from opcost.energy.sensor import Sensor
from opcost.power.energy import DeviceEnergy

from tests.simulated_nvml.card import Card, build
from tests.simulated_nvml.recorded import Recorded, record
from tests.simulated_powercap import Powercap

LENGTHS_S = (0.05, 0.2, 1.0, 5.0, 30.0)
PAUSES_S = (0.002, 0.02, 0.1, 0.3, 0.5)
RECORDED_S = 80.0
LOOP_S = 20.0
IDLE_W = 60.0
WINDOWS = 10
KINDS = {
    "counter of 100 ms": (Sensor(0.1, 0.1, counter_refresh_s=0.1), True),
    "counter of 20 ms": (Sensor(0.02, 0.02, counter_refresh_s=0.02), True),
    "readings of 100 ms": (Sensor(0.1, 0.1), False),
    "readings of 25 in 100 ms": (Sensor(0.1, 0.025), False),
    "readings that average 1 s": (Sensor(0.1, 1.0), False),
}


Edges = Sequence[tuple[float, Callable[[], None]]]


class Zeus:
    """ZeusMonitor, on the clock of the card."""

    def __init__(self, card: Card) -> None:
        from zeus.monitor import energy  # type: ignore[import-not-found]  # no dependency

        energy.time = card.now_s
        self._monitor = energy.ZeusMonitor(cpu_indices=[], approx_instant_energy=True)
        self.found_j: dict[tuple[float, float], float] = {}

    def edges(self, windows: Sequence[tuple[float, float]]) -> Edges:
        """What to do at which moment of the recording to measure these windows."""
        found = []
        for window in windows:
            found += [
                (window[0], partial(self._begin, window)),
                (window[1], partial(self._end, window)),
            ]
        return found

    def _begin(self, window: tuple[float, float]) -> None:
        self._monitor.begin_window(str(window), sync_execution=False)

    def _end(self, window: tuple[float, float]) -> None:
        measured = self._monitor.end_window(str(window), sync_execution=False)
        self.found_j[window] = measured.total_energy


def draw(
    card: Card,
    sensor: Sensor,
    has_counter: bool,
    seed: int,
    meanwhile: Edges = (),
    load: Sequence[tuple[float, float]] = (),
) -> Recorded:
    """A card with this kind of sensor, of random phase, noise and rise time."""
    generator = random.Random(seed)
    return record(
        card,
        sensor,
        generator,
        LOOP_S if load else RECORDED_S,
        period_s=sensor.refresh_s / 4,
        counter=has_counter,
        load=load,
        meanwhile=meanwhile,
        seed=seed,
        refresh_s=sensor.refresh_s,
        window_s=sensor.averaging_s,
        counter_step_s=sensor.counter_refresh_s or 0.1,
        phase_s=generator.uniform(0, sensor.refresh_s),
        noise=generator.uniform(0.001, 0.01),
        rise_s=generator.uniform(0.01, 0.1) if not load else generator.uniform(0.002, 0.02),
        fluctuation_w=generator.uniform(0, 10),
    )


def loop(
    length_s: float, pause_s: float, seed: int
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The load of a loop, as pairs of seconds and watts, and windows around its busy parts."""
    generator = random.Random(seed)
    busy_w, now_s = generator.uniform(150, 600), 2.0
    load, windows = [(now_s, IDLE_W)], []
    while now_s < LOOP_S:
        busy_s, idle_s = (each * generator.uniform(0.9, 1.1) for each in (length_s, pause_s))
        load += [(busy_s, busy_w), (idle_s, IDLE_W)]
        if 6 < now_s < LOOP_S - length_s - 3:
            windows.append((now_s, now_s + busy_s))
        now_s += busy_s + idle_s
    return load, windows


def polled(recorded: Recorded, start_s: float, end_s: float) -> float | None:
    """Joules as a polling loop finds them."""
    times_s, watts = recorded.samples["time_s"], recorded.samples["power_w"]
    inside = (times_s >= start_s) & (times_s <= end_s) & ~np.isnan(watts)
    return float(watts[inside].mean()) * (end_s - start_s) if inside.any() else None


def subtracted(recorded: Recorded, start_s: float, end_s: float) -> float | None:
    """Joules as the difference of two readings of the counter."""
    times_s, joules = recorded.samples["time_s"], recorded.samples["counter_j"]
    first, last = np.searchsorted(times_s, [start_s, end_s], "right") - 1
    return None if np.isnan(joules[first]) else float(joules[last] - joules[first])


def main() -> None:
    """Print a table for each kind of sensor."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--zeus", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        card = Card(build(Path(folder)))
        for kind, (sensor, has_counter) in KINDS.items():
            errors = {length_s: [] for length_s in LENGTHS_S}
            for seed in range(arguments.draws):
                windows = _windows(seed)
                zeus = None
                if arguments.zeus and has_counter:
                    card.reset()
                    zeus = Zeus(card)
                edges = zeus.edges([window for _, window in windows]) if zeus else ()
                recorded = draw(card, sensor, has_counter, seed, edges)
                for length_s, window in windows:
                    found = recorded.window(*window)
                    errors[length_s].append(_compared(recorded, window, *found, zeus))
            _print(kind, errors)
        for kind, (sensor, has_counter) in KINDS.items():
            _print_loops(card, kind, sensor, has_counter, arguments.draws)
        errors = {length_s: [] for length_s in LENGTHS_S}
        for seed in range(arguments.draws):
            for length_s, compared in _of_processor(seed, Path(folder) / f"powercap{seed}"):
                errors[length_s].append(compared)
        _print("processor (RAPL)", errors)


def _print(kind: str, errors: dict[float, list[dict]]) -> None:
    print(kind)
    for length_s, found in errors.items():
        print(f"  {length_s:5g} s: {_summary(found)}")


def _print_loops(card: Card, kind: str, sensor: Sensor, has_counter: bool, draws: int) -> None:
    print(f"{kind}, loops")
    for length_s in (0.2, 1.0):
        for pause_s in PAUSES_S:
            found = []
            for seed in range(draws):
                load, windows = loop(length_s, pause_s, seed)
                recorded = draw(card, sensor, has_counter, seed, load=load)
                for window in windows:
                    told, true_j = recorded.window(*window)
                    found.append(_compared(recorded, window, told, true_j, None))
            print(f"  {length_s:5g} s, pauses of {pause_s:g} s: {_summary(found)}")


def _of_processor(seed: int, folder: Path) -> list[tuple[float, dict]]:
    """Windows of a processor with drawn packages and counters, each with its length."""
    generator = random.Random(seed)
    powercap = Powercap(
        folder,
        packages=generator.choice([1, 2]),
        has_memory=generator.random() < 0.5,
        range_uj=generator.choice([50_000_000, 262_143_328_850]),
        generator=generator,
        seconds=RECORDED_S,
    )
    windows = _windows(seed)
    samples = powercap.record(0.025, [edge_s for _, window in windows for edge_s in window])
    powercap.close()
    recorded = Recorded(powercap, RaplMeter.assumed, samples)
    return [
        (length_s, _compared(recorded, window, *powercap.window(samples, *window), None))
        for length_s, window in windows
    ]


def _windows(seed: int) -> list[tuple[float, tuple[float, float]]]:
    """Windows at random moments, each with its length."""
    generator, found = random.Random(seed), []
    for length_s in LENGTHS_S:
        for _ in range(WINDOWS):
            start_s = generator.uniform(6, RECORDED_S - length_s - 2)
            found.append((length_s, (start_s, start_s + length_s)))
    return found


def _compared(
    recorded: Recorded,
    window: tuple[float, float],
    found: DeviceEnergy,
    true_j: float,
    zeus: Zeus | None,
) -> dict:
    others = {"polling": polled, "subtraction": subtracted}
    if zeus is not None:
        others["Zeus"] = lambda _, *window: zeus.found_j[window]
    return {
        "held": found.energy and found.energy.low <= true_j <= found.energy.high,
        "half": found.energy and found.energy.relative_half_width,
        "opcost": found.energy and found.energy.value / true_j - 1,
        **{
            name: value and value / true_j - 1
            for name, other in others.items()
            for value in [other(recorded, *window)]
        },
    }


def _summary(found: list[dict]) -> str:
    told = [each for each in found if each["opcost"] is not None]
    texts = [f"{1 - len(told) / len(found):4.0%} refused"]
    if told:
        held = sum(bool(each["held"]) for each in told) / len(told)
        half = float(np.median([each["half"] for each in told]))
        texts.append(f"{held:.1%} held in ±{half:.1%}")
    for name in ("opcost", "polling", "subtraction", "Zeus"):
        errors = np.abs([each[name] for each in found if each.get(name) is not None])
        if len(errors):
            worst = float(np.quantile(errors, 0.95))
            texts.append(f"{name} {float(np.median(errors)):.1%} off, {worst:.0%} in 5 %")
    return "; ".join(texts)


if __name__ == "__main__":
    main()
