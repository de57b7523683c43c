"""The optimum of a sweep of power limits: how far from the truth, and does its interval hold it?

Draws simulated cards (tests/simulated_nvml), whose work above a limit draws the limit and takes
longer. Each of eight limits from 100 to 40 % of the highest is set by NVML, and a whole trial
measures time and energy of an iteration on a virtual clock. The optimum on the curve through these
is held against that of the card: of energy, energy x delay and energy x delay^2. Above the power
that a card draws without a limit, all limits are equally good.

    PYTHONPATH=scripts python -m tests.benchmarks.power_limits [--draws 100]
"""

import argparse
import dataclasses
import math
import random
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from opcost.devices.device import BatchTime, nothing
from opcost.devices.gpu_settings import Gpu
from opcost.devices.machine_id import hashed_uuid
from opcost.energy.nvml import NvmlMeter
from opcost.measuring.trial import run_trial
from opcost.optimum import energy_delay, optimum
from opcost.study import default_measurement

from tests.simulated_nvml.card import UUID, Card, CardDevice, CardLoad, build
from tests.stations import station_of

MOST_W, LIMITS, LOWEST = 700, 8, 0.4
EXPONENTS = {"energy": 0, "energy x delay": 1, "energy x delay^2": 2}
_AS_GOOD = 1.0005


class LimitedDevice(CardDevice):
    """The card, whose work takes as long as the limit lets it."""

    def time(self, work, lead=nothing) -> BatchTime:
        """Do the work, and time it by the card's clock."""
        lead()
        start_s = self._card.now_s()
        seconds = self.start(work).end_s - start_s
        self._card.sleep(max(0.0, seconds))
        return BatchTime(seconds * (1 + self._generator.gauss(0, self._time_noise)), 0.0)


@dataclasses.dataclass
class Truth:
    """A card's work: what it draws without a limit, and how it slows down under one."""

    idle_w: float
    full_w: float
    slowing: float
    iteration_s: float

    def cost(self, limit_w: np.ndarray, exponent: int) -> np.ndarray:
        """Energy times a power of the time, in J and s."""
        above = np.minimum(limit_w, self.full_w) - self.idle_w
        time_s = self.iteration_s * ((self.full_w - self.idle_w) / above) ** self.slowing
        return (self.idle_w + above) * time_s ** (exponent + 1)


def sweep(card, seed, settings):
    """The truth of a drawn card, and the limits with the time and energy that were measured."""
    generator = random.Random(seed)
    between = generator.uniform
    truth = Truth(
        between(40, 90), between(300, 650), between(0.1, 0.5), math.exp(between(-9.2, -6.9))
    )
    refresh_s, window_s = between(0.02, 0.1), between(0.02, 0.1)
    card.reset(
        seed=seed,
        refresh_s=refresh_s,
        window_s=window_s,
        phase_s=between(0, refresh_s),
        idle_w=truth.idle_w,
        noise=math.exp(between(math.log(0.002), math.log(0.03))),
        counter_step_s=refresh_s,
        slowing=truth.slowing,
        most_limit_w=MOST_W,
    )
    sensor = dataclasses.replace(
        NvmlMeter(UUID).assumed,
        refresh_s=refresh_s,
        averaging_s=window_s,
        counter_refresh_s=refresh_s,
        source="measured",
    )
    time_noise = math.exp(between(math.log(0.001), math.log(0.03)))
    gpu, points = Gpu(hashed_uuid(UUID)), []
    for limit_w in np.linspace(MOST_W, LOWEST * MOST_W, LIMITS):
        gpu.set_power_limit(float(limit_w))
        load = CardLoad(card, truth.iteration_s, truth.full_w)
        device = LimitedDevice(card, load, time_noise, generator)
        meter = partial(NvmlMeter, UUID)
        station = station_of(device, settings, meter=meter, sensor=sensor, clock=card)
        trial = run_trial(device, station, settings)
        points.append((float(limit_w), trial.time.estimate, trial.energy))
    return truth, points


def main():
    """Print a line for each cost."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=100, help="cards")
    arguments = parser.parse_args()
    settings = default_measurement()
    fine_w = np.linspace(LOWEST * MOST_W, MOST_W, 4001)
    found = {name: [] for name in EXPONENTS}
    with tempfile.TemporaryDirectory() as folder:
        card = Card(build(Path(folder)))
        for seed in range(arguments.draws):
            truth, points = sweep(card, seed, settings)
            for name, exponent in EXPONENTS.items():
                costs = [
                    (x, energy_delay(time, energy, exponent) if exponent else energy)
                    for x, time, energy in points
                ]
                best = optimum([(x, cost) for x, cost in costs if cost])
                if best is None:
                    continue
                true = truth.cost(fine_w, exponent)
                as_good = fine_w[true <= _AS_GOOD * true.min()]
                step_w = (1 - LOWEST) * MOST_W / 200
                holds = best.low - step_w <= as_good.max() and best.high + step_w >= as_good.min()
                loss = float(truth.cost(np.array([best.at]), exponent)[0]) / true.min() - 1
                least = min(costs, key=lambda each: each[1].value)[0]
                raw = float(truth.cost(np.array([least]), exponent)[0]) / true.min() - 1
                cost_holds = best.cost.low <= true.min() <= best.cost.high
                width = (best.high - best.low) / ((1 - LOWEST) * MOST_W)
                found[name].append((holds, cost_holds, width, loss, raw, best.is_bounded))
    print(
        f"{'':18} cards  holds the optimum  its cost  interval, of the range  "
        "worse than the optimum: median  worst (best measured)  inside"
    )
    for name, rows in found.items():
        holds, cost, width, loss, raw, inside = np.array(rows, float).T
        print(
            f"{name:18} {len(rows):5}  {holds.mean():17.0%}  {cost.mean():8.0%}  "
            f"{np.median(width):22.0%}  {np.median(loss):30.2%}  {loss.max():6.1%} "
            f"({raw.max():.1%})  {inside.mean():.0%}"
        )


if __name__ == "__main__":
    main()
