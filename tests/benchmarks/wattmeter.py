"""How well is a sensor's gain found by a wattmeter? On simulated recordings of three minutes.

Gain, offset, load and noise are drawn; the wattmeter's clock is ahead by a thousand seconds.

    PYTHONPATH=scripts python -m tests.benchmarks.wattmeter [--draws 100]
"""

import argparse
import random

import numpy as np
from opcost.energy.wattmeter import calibrate
from opcost.statistics import Estimate

from tests.simulated_wattmeter import both

PERIODS_S = (0.2, 0.5, 1.0)


def main() -> None:
    """Print a line for each period of the wattmeter."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=100)
    arguments = parser.parse_args()
    for period_s in PERIODS_S:
        gains, offsets = [], []
        for seed in range(arguments.draws):
            generator = random.Random(seed)
            gain, offset_w = generator.uniform(0.9, 1.4), generator.uniform(0, 60)
            meter, sensor = both(gain, offset_w, seed, period_s)
            found = calibrate(meter, sensor, seed)
            gains.append((found.gain, gain))
            offsets.append((found.offset_w, offset_w))
        half = float(np.median([each.relative_half_width for each, _ in gains]))
        print(
            f"{period_s:g} s: gain {_errors(gains, relative=True)}, half {half:.2%}; "
            f"offset {_errors(offsets, relative=False)}"
        )


def _errors(found: list[tuple[Estimate, float]], relative: bool) -> str:
    errors = np.abs([each.value - true for each, true in found])
    held = sum(each.low <= true <= each.high for each, true in found)
    if relative:
        errors = errors / np.array([true for _, true in found])
    show = "{:.2%}" if relative else "{:.2f} W"
    middle, worst = show.format(np.median(errors)), show.format(errors.max())
    return f"{middle} off, at worst {worst}, {held} of {len(found)} intervals hold"


if __name__ == "__main__":
    main()
