"""Linux's powercap tree of a processor whose load changes, on a virtual clock.

Each package and its memory has a counter in microjoules that is updated every millisecond and wraps
around at its range. Another part of the package, `core`, is in the tree as well.
"""

import math
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from opcost.energy.rapl import RaplMeter
from opcost.power.energy import DeviceEnergy
from opcost.power.readings import WindowEnergies
from opcost.power.recording import FIELDS, SAMPLE
from opcost.power.sampler import SOON_S

UPDATE_S = 0.001
_SWITCHES_S = (0.05, 3.0)
_OF_MEMORY = 0.1


@dataclass
class Powercap:
    """A tree in `root` with so many packages, all under the same load, which switches at random
    moments. Memory, if it has a counter, draws a tenth of its package's power.
    """

    root: Path
    packages: int
    has_memory: bool
    range_uj: int
    generator: random.Random
    seconds: float
    now_s: float = 0.0
    times_s: np.ndarray = field(init=False)
    joules: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        times_s, watts = [0.0], []
        shortest, longest = map(math.log, _SWITCHES_S)
        while times_s[-1] < self.seconds:
            times_s.append(times_s[-1] + math.exp(self.generator.uniform(shortest, longest)))
            watts.append(self.generator.choice([15.0, self.generator.uniform(40, 200)]))
        self.times_s = np.array(times_s)
        self.joules = np.concatenate([[0.0], np.cumsum(np.array(watts) * np.diff(self.times_s))])
        self.phase_s = self.generator.uniform(0, UPDATE_S)
        self._domains: list[tuple[int, float, int]] = []
        for number in range(self.packages):
            package = self.root / f"intel-rapl:{number}"
            self._add(package, f"package-{number}", 1.0)
            self._add(package / f"{package.name}:0", "core", 0.7)
            if self.has_memory:
                self._add(package / f"{package.name}:1", "dram", _OF_MEMORY)
        self.update()

    def _add(self, folder: Path, name: str, share: float) -> None:
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{self.range_uj}\n")
        counter = os.open(folder / "energy_uj", os.O_CREAT | os.O_RDWR)
        self._domains.append((counter, share, self.generator.randrange(self.range_uj)))

    def close(self) -> None:
        """Close the files."""
        for counter, *_ in self._domains:
            os.close(counter)

    def of_package_j(self, moment_s: float) -> float:
        """What one package has drawn."""
        return float(np.interp(moment_s, self.times_s, self.joules))

    def true_energy_j(self, moment_s: float) -> float:
        """What all packages and their memory have drawn."""
        memory = _OF_MEMORY if self.has_memory else 0.0
        return self.packages * (1 + memory) * self.of_package_j(moment_s)

    def update(self) -> None:
        """Let the files show what they do now."""
        steps = math.floor((self.now_s - self.phase_s) / UPDATE_S)
        spent_uj = 1e6 * self.of_package_j(max(0.0, steps * UPDATE_S + self.phase_s))
        for counter, share, first_uj in self._domains:
            shown_uj = (first_uj + int(share * spent_uj)) % self.range_uj
            # In place: truncating a file first takes milliseconds on some file systems.
            os.pwrite(counter, f"{shown_uj:020d}\n".encode(), 0)

    def record(self, period_s: float, edges_s: list[float]) -> np.ndarray:
        """Read the meter every period, and at and soon after edges, as the sampler does."""
        meter = RaplMeter(self.root, lambda: self.now_s)
        regular = np.arange(0.0, self.seconds, period_s)
        rows = []
        soon_s = [edge_s + SOON_S for edge_s in edges_s]
        for moment_s in sorted([*regular, *edges_s, *soon_s]):
            self.now_s = moment_s
            self.update()
            unknown = [math.nan] * (len(FIELDS) - 4)
            rows.append((moment_s, 0, math.nan, meter.counter_j(), *unknown))
        return np.array(rows, SAMPLE)

    def window(
        self, samples: np.ndarray, start_s: float, end_s: float
    ) -> tuple[DeviceEnergy, float]:
        """What a window is said to have used, and what it has used."""
        source = {"name": "cpu", "sensor": vars(RaplMeter.assumed), "reads_since_last": True}
        energies = WindowEnergies({"sources": [source], "period_s": 0.025})
        found = energies.of(samples, start_s, end_s, dict)["cpu"]
        return found, self.true_energy_j(end_s) - self.true_energy_j(start_s)
