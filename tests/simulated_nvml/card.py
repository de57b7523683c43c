"""The simulated NVIDIA card of nvml.c, in this process, and a clock and a load that go with it."""

import ctypes
import random
import shutil
import subprocess
from pathlib import Path

from opcost.devices.device import BlockTime, nothing
from opcost.devices.kinds import KINDS

UUID = "GPU-simulated"
SOURCE = Path(__file__).parent / "nvml.c"


def build(folder: Path, *flags: str) -> Path | None:
    """Compile the library into `folder`; returns its path, or None without a C compiler (cc)."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    output = folder / "libnvidia-ml.so.1"
    options = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O2"]
    soname = "-Wl,-soname,libnvidia-ml.so.1"
    command = [compiler, *options, soname, *flags, "-o", output, SOURCE, "-lm"]
    subprocess.run(command, check=True)
    return output


class Card:
    """The card. Once it is loaded, pynvml finds it under the library's own name."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        for name in ("now", "run", "true_energy_j", "steady_energy_j"):
            getattr(self._library, f"simulated_{name}").restype = ctypes.c_double

    def reset(self, **settings: float) -> None:
        """Begin anew, idle, at time zero of a virtual clock unless `virtual=0`."""
        self._library.simulated_reset()
        self.set(**{"virtual": 1, **settings})

    def set(self, **settings: float) -> None:
        """Change settings from now on; nvml.c names them."""
        for name, value in settings.items():
            known = self._library.simulated_set(name.encode(), ctypes.c_double(value))
            assert known, f"the simulated card has no setting {name}"

    def run(self, seconds: float, watts: float) -> float:
        """Queue work; returns when it will be done."""
        return self._library.simulated_run(ctypes.c_double(seconds), ctypes.c_double(watts))

    def true_energy_j(self, at_s: float) -> float:
        """What the card has really drawn since time zero."""
        return self._library.simulated_true_energy_j(ctypes.c_double(at_s))

    def steady_power_w(self, start_s: float, end_s: float) -> float:
        """Its true mean power between two moments, the fluctuations left out."""
        energy = self._library.simulated_steady_energy_j
        spent_j = energy(ctypes.c_double(end_s)) - energy(ctypes.c_double(start_s))
        return spent_j / (end_s - start_s)

    def now_s(self) -> float:
        """The card's clock."""
        return self._library.simulated_now()

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        assert seconds >= 0
        self._library.simulated_advance(ctypes.c_double(seconds))


class CardLoad:
    """Iterations of `iteration_s`, each a sequence of (share of it, watts)."""

    may_wait = False

    def __init__(self, card: Card, iteration_s: float, profile) -> None:
        self.iteration_s = iteration_s
        self._card = card
        self._profile = profile if isinstance(profile, list) else [(1.0, profile)]

    @property
    def mean_w(self) -> float:
        """Its true mean power."""
        return sum(share * watts for share, watts in self._profile)

    def start(self, iterations: int) -> "Until":
        """Queue iterations on the card."""
        if len(self._profile) == 1:
            return Until(self._card, self._card.run(iterations * self.iteration_s, self.mean_w))
        for _ in range(iterations):
            for share, watts in self._profile:
                end_s = self._card.run(share * self.iteration_s, watts)
        return Until(self._card, end_s)


class Until:
    """Work that is done at a known time of the card's clock."""

    def __init__(self, card: Card, end_s: float) -> None:
        self._card, self.end_s = card, end_s

    def __call__(self) -> bool:
        """Whether that time has come."""
        return self._card.now_s() >= self.end_s - 1e-9


class CardDevice:
    """The card as the device, and the workload, of a trial; timings scatter by `time_noise`."""

    kind = KINDS["cuda"]
    uuid = UUID
    rotation = 1
    in_use = False

    def __init__(self, card: Card, load: CardLoad, time_noise=0.002, generator=None) -> None:
        self._card, self._load = card, load
        self._time_noise, self._generator = time_noise, generator or random.Random(0)
        self._queued = 0

    def run(self, iterations: int) -> None:
        """Ask for iterations; `time` or `start` has them done."""
        self._queued += iterations

    def synchronise(self) -> None:
        """Do what was asked for."""
        self.time(lambda: None)

    def time(self, work, lead=nothing) -> BlockTime:
        """Do the work, and time it."""
        lead()
        pending = self.start(work)
        seconds = self._iterations * self._load.iteration_s
        while not pending():
            self._card.sleep(seconds)
        return BlockTime(seconds * (1 + self._generator.gauss(0, self._time_noise)), 0.0)

    def start(self, work) -> Until:
        """Start the work."""
        work()
        self._iterations, self._queued = self._queued, 0
        return self._load.start(self._iterations)
