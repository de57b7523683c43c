"""Windows of time that give the energy of all devices."""

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

from opcost.devices.kinds import wait_for_devices
from opcost.errors import OpcostError
from opcost.power.energy import DeviceEnergy, together, total
from opcost.power.monitor import Monitor, kept_recordings
from opcost.power.recording import around
from opcost.power.text import as_line, as_text
from opcost.statistics import Estimate
from opcost.text import seconds, wrapped

_PART_S = 60.0
"""A part of this length of a window that is not over is not evaluated again. Limits of parts add
up, so the relative width of the total's interval is that of such a part."""

_lock = threading.RLock()  # a signal's handler may begin a window meanwhile
_shared: Monitor | None = None


def _forked() -> None:
    """Replace the lock in a fork: another thread of the parent may hold it."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)


class Window:
    """A window of time, over after `stop`. Its energy is computed when it is first asked for."""

    def __init__(self, name: str, monitor: Monitor, devices: Sequence[str] | None = None) -> None:
        self.name = name
        self._monitor, self._chosen = monitor, devices
        wait_for_devices()
        self._start_s = self._since_s = monitor.edge()
        self._end_s: float | None = None
        self._is_over = False
        self._before: dict[str, list[DeviceEnergy]] = {}
        monitor.note({"begun": name, "start_s": self._start_s})  # it may be killed

    def stop(self) -> None:
        """End the window. Raises OpcostError if it is over already."""
        with _lock:  # two threads may end it
            if self._is_over:
                raise OpcostError(f"the window {self.name!r} is over already: start another")
            self._is_over = True
        wait_for_devices()
        self._end_s = self._monitor.edge()
        self._monitor.is_over(self)
        self._monitor.note({"window": self.name, "start_s": self._start_s, "end_s": self._end_s})

    @property
    def time_s(self) -> float:
        """Seconds of the window; up to now if it is not over."""
        return (time.monotonic() if self._end_s is None else self._end_s) - self._start_s

    @cached_property
    def devices(self) -> dict[str, DeviceEnergy]:
        """Energy by device name. Raises OpcostError if the window is not over.

        Waits a few tenths of a second for the sensors to show the end of the window.
        """
        if self._end_s is None:
            raise OpcostError(f"the window {self.name!r} is not over: call its stop() first")
        found = self._monitor.energy(self._start_s, self._end_s)
        return self._of_chosen(found)

    @cached_property
    def machine(self) -> dict[str, float | None]:
        """The machine in the window: use of all cores and of each GPU in per cent, the most memory
        that this process and its descendants held, and mean temperatures. Null if Linux or the
        driver does not tell, as in virtual machines, or the window is shorter than 0.2 s. Raises
        OpcostError if the window is not over.
        """
        _ = self.devices
        return self._monitor.machine(self._start_s, self._start_s + self.time_s)

    @property
    def total(self) -> DeviceEnergy:
        """All devices of `devices` together, except those that contain others or are contained in
        them; without energy, but with a reason, if one of them has none.
        """
        return together(self.devices)[1]

    def so_far(self, now_s: float | None = None) -> dict[str, DeviceEnergy]:
        """Energy by device name of a window that is not over, up to now, in constant time."""
        now_s = self._monitor.edge() if now_s is None else now_s
        latest = self._monitor.energy(self._since_s, now_s)
        before = self._before or {name: [] for name in latest}
        found = {name: total([*before[name], each], "parts") for name, each in latest.items()}
        if now_s - self._since_s >= _PART_S:
            self._before, self._since_s = {name: [each] for name, each in found.items()}, now_s
        return self._of_chosen(found)

    def _of_chosen(self, found: Mapping[str, DeviceEnergy]) -> dict[str, DeviceEnergy]:
        chosen = found if self._chosen is None else self._chosen
        return {name: each for name, each in found.items() if name in chosen}

    def line(self) -> str:
        """The window as one line for a log: name, time, energy and mean power of each device.

        `str` adds the reasons and notes. If the window is not over, the energy is that up to now.
        """
        if self._end_s is not None:
            return as_line(self.name, self.time_s, self.devices)
        now_s = self._monitor.edge()
        return as_line(f"{self.name} so far", now_s - self._start_s, self.so_far(now_s))

    def __repr__(self) -> str:
        """The name, and the energy if it is known without waiting."""
        if self._end_s is None:
            return f"<Window {self.name!r}, not over>"
        if "devices" not in vars(self):
            return f"<Window {self.name!r}: {seconds(self.time_s)}>"
        return f"<Window {as_line(repr(self.name), self.time_s, self.devices)}>"

    def __str__(self) -> str:
        if self._end_s is None:
            return f"{self.name}: not over"
        lines = as_text(self.name, Estimate(self.time_s, None, None), self.devices)
        if unseen := self._monitor.unseen:
            lines += wrapped([f"No other device is seen: {'; '.join(unseen)}."])
        return "\n".join(lines)


@contextmanager
def measure(
    name: str = "window", devices: Sequence[str] | None = None, monitor: Monitor | None = None
) -> Iterator[Window]:
    """Measure the energy of a block of code; the window is usable even if the block raises.

    `devices` are named as in targets (`cuda:0`, `cpu`); by default, all that this process may see.
    The first window of a process determines which devices are read: later windows may select some
    of these, or use another `monitor`. Raises OpcostError for others.
    """
    window = start(name, devices, monitor)
    try:
        yield window
    finally:
        window.stop()


def start(
    name: str = "window", devices: Sequence[str] | None = None, monitor: Monitor | None = None
) -> Window:
    """Begin a window, which its `stop` ends. Arguments as for `measure`."""
    global _shared
    if not isinstance(name, str) or not name.isprintable():
        raise OpcostError(f"the name of a window is {name!r}: give text of one line")
    if monitor is not None and monitor.is_closed:
        raise OpcostError(f"the monitor of window {name!r} is closed: open another")
    if monitor is None:
        with _lock:
            if _shared is None or not _shared.is_running:  # a fork opens its own
                _shared = Monitor(devices)
            monitor = _shared
    known = [*monitor.devices, *monitor.missing]
    if devices is not None and set(devices) - set(known):
        raise OpcostError(
            f"the monitor of window {name!r} reads the devices {', '.join(known)}: for others, "
            "open a Monitor of them, and give it to the window"
        )
    return Window(name, monitor, devices)


def log(**values: float) -> bool:
    """Write figures such as `log(loss=0.3)` into the recordings that this program runs in, and into
    those of its own monitors. They belong to the windows that are open.

    Returns whether there is a recording; without `opcost measure --output`, nothing is written.
    Raises OpcostError for a value that is not a number, with or without a recording.
    """
    numbers = {}
    for name, each in values.items():
        if not name.isprintable():
            raise OpcostError(f"log: the name {name!r} cannot be printed: give text of one line")
        try:
            # A tensor that autograd records would warn.
            numbers[name] = float(each.detach() if hasattr(each, "detach") else each)
        except (TypeError, ValueError, OverflowError) as error:
            raise OpcostError(f"log: {name} is {each!r}: give numbers") from error
    recordings = [*around(), *kept_recordings()]
    for recording in recordings:
        recording.note({"metrics": numbers})
    return bool(recordings)
