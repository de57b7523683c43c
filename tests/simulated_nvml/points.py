"""What is set of the simulated card, as all processes see it: SIMULATED_POINT of nvml.c."""

import struct
import time
from pathlib import Path

_FORM = "4d"


class CardPoint:
    """Power limit and locked clocks of the card; 0 is as it is by itself."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def now(self) -> tuple[float, float, float]:
        """(watts, MHz of the multiprocessors, MHz of the memory)."""
        return self._read()[:3]

    def set(self, limit_w: float = 0, sm_mhz: float = 0, memory_mhz: float = 0) -> None:
        """Set it, as another program would."""
        self._write(limit_w, sm_mhz, memory_mhz, self._read()[3])

    def refuse(self, code: int) -> None:
        """From now on, NVML refuses everything with an error code, for all; 0 for nothing."""
        self._write(*self.now, code)

    def becomes(self, limit_w: float, within_s: float = 20) -> bool:
        """Whether the power limit becomes that soon."""
        end_s = time.monotonic() + within_s
        while self.now[0] != limit_w and time.monotonic() < end_s:
            time.sleep(0.01)
        return self.now[0] == limit_w

    def _read(self) -> tuple[float, ...]:
        content = self._path.read_bytes() if self._path.exists() else b""
        return struct.unpack(_FORM, content.ljust(struct.calcsize(_FORM), b"\0"))

    def _write(self, *values: float) -> None:
        self._path.write_bytes(struct.pack(_FORM, *values))
