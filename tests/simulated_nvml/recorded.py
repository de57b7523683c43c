"""A recording of the simulated card under a load that changes, on the virtual clock."""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from opcost.energy.nvml import NvmlMeter
from opcost.energy.sensor import Sensor
from opcost.power.energy import DeviceEnergy
from opcost.power.readings import WindowEnergies
from opcost.power.recording import SAMPLE

from tests.simulated_nvml.card import UUID, Card

LIMIT_W = 700.0
"""The power limit of the card."""


@dataclass
class Recorded:
    """Samples of a card, and what is assumed of its sensor."""

    card: Card
    sensor: Sensor
    samples: np.ndarray

    def window(self, start_s: float, end_s: float) -> tuple[DeviceEnergy, float]:
        """What a window is said to have used, and what it has used."""
        period_s = float(np.median(np.diff(self.samples["time_s"])))
        source = {"name": "card", "sensor": vars(self.sensor), "reads_since_last": False}
        energies = WindowEnergies({"sources": [source], "period_s": period_s})
        found = energies.of(self.samples, start_s, end_s, dict)["card"]
        return found, self.card.true_energy_j(end_s) - self.card.true_energy_j(start_s)


def switching(
    generator: random.Random, seconds: float, switches_s: tuple[float, float] = (0.05, 3.0)
) -> Iterator[tuple[float, float]]:
    """A load that switches at random moments, which are so far apart: pairs of seconds, watts."""
    left_s = seconds
    while left_s > 0:
        stays_s = math.exp(generator.uniform(*map(math.log, switches_s)))
        busy = generator.random() < 0.7
        yield stays_s, generator.uniform(150, 600) if busy else 60.0
        left_s -= stays_s


def record(
    card: Card,
    sensor: Sensor,
    generator: random.Random,
    seconds: float,
    *,
    period_s: float = 0.025,
    counter: bool = True,
    load: Iterable[tuple[float, float]] = (),
    meanwhile: Sequence[tuple[float, Callable[[], None]]] = (),
    **settings: float,
) -> Recorded:
    """Reset the card, give it a load, and read its meter.

    The `load` is pairs of seconds and watts; by default, it switches at random moments. `meanwhile`
    are moments of the recording, with what is done then.
    """
    card.reset(**settings)
    for stays_s, watts in load or switching(generator, seconds):
        card.run(stays_s, watts)
    meter = NvmlMeter(UUID)
    rows = []
    coming = sorted(meanwhile, key=lambda each: each[0])[::-1]
    while card.now_s() < seconds:
        counter_j = meter.counter_j() if counter else None
        power_w = meter.power_w()
        known_j = math.nan if counter_j is None else counter_j
        state = (LIMIT_W if name == "power_limit_w" else math.nan for name in SAMPLE.names[4:])
        rows.append((card.now_s(), 0, power_w, known_j, *state))
        next_s = card.now_s() + period_s * generator.uniform(0.9, 1.3)
        while coming and coming[-1][0] <= next_s:
            moment_s, do = coming.pop()
            card.sleep(max(0.0, moment_s - card.now_s()))
            do()
        card.sleep(max(0.0, next_s - card.now_s()))
    return Recorded(card, sensor, np.array(rows, SAMPLE))
