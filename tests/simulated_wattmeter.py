"""A simulated wattmeter: prints the mean power of an interval, some time later.

    python -m tests.simulated_wattmeter FILE INTERVAL_S DELAY_S [ends|silent|text|same]

Power is 300 W until the moment of the monotonic clock that FILE holds as a double, else 100 W.
After two seconds it may end (exit code 3), print nothing more, text, or the same value.
"""

import struct
import sys
import time
from pathlib import Path

IDLE_W, BUSY_W = 100.0, 300.0
_GOOD_S, _STEP_S = 2.0, 0.002


class SimulatedLoad:
    """A load of a file that the wattmeter shows, in real time."""

    iteration_s = 1e-3
    may_wait = False

    def __init__(self, path: Path) -> None:
        self._path, self._until_s = path, 0.0
        self.busy_until(0.0)

    def busy_until(self, moment_s: float) -> None:
        """Draw more power until then."""
        self._until_s = moment_s
        self._path.write_bytes(struct.pack("d", moment_s))

    def start(self, iterations: int):
        """Queue so many iterations."""
        end_s = max(self._until_s, time.monotonic()) + iterations * self.iteration_s
        self.busy_until(end_s)
        return lambda: time.monotonic() >= end_s


def main() -> None:
    """Print watts for ever."""
    path, interval_s, delay_s, *then = sys.argv[1:]
    interval_s, delay_s = float(interval_s), float(delay_s)
    begun_s = due_s = time.monotonic()
    history: list[tuple[float, float]] = []
    while True:
        time.sleep(_STEP_S)
        now_s = time.monotonic()
        content = Path(path).read_bytes()
        if len(content) == struct.calcsize("d"):
            busy = now_s < struct.unpack("d", content)[0]
            history.append((now_s, BUSY_W if busy else IDLE_W))
        if now_s < due_s:
            continue
        due_s += interval_s
        first_s, last_s = now_s - delay_s - interval_s, now_s - delay_s
        seen = [watts for time_s, watts in history if first_s <= time_s < last_s]
        history = [each for each in history if each[0] >= first_s]
        if then and now_s > begun_s + _GOOD_S:
            if then == ["ends"]:
                sys.exit(3)
            elif then == ["text"]:
                print("Leistung: hoch", flush=True)
            elif then == ["same"]:
                print(123.4, flush=True)
        else:
            mean_w = sum(seen) / len(seen) if seen else IDLE_W
            print(round(mean_w + 0.1 * (now_s % 1), 3), flush=True)


if __name__ == "__main__":
    main()
