"""Windows of time, and the energy of all devices in them."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from opcost.devices.kinds import wait_for_devices
from opcost.errors import OpcostError
from opcost.power.device_energy import DeviceEnergy
from opcost.power.monitor import Monitor
from opcost.power.so_far import SoFar
from opcost.power.window_text import as_line, as_text
from opcost.text import seconds

_lock = threading.RLock()  # a signal's handler may begin a window meanwhile
_shared: Monitor | None = None


def _forked() -> None:
    """In a fork, another thread of the parent may hold the lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)


class Window:
    """A window of time. It is over after `stop`; its energy is found when it is asked for."""

    def __init__(self, name: str, monitor: Monitor, devices: Sequence[str] | None = None) -> None:
        self.name = name
        self._monitor, self._chosen = monitor, devices
        wait_for_devices()
        self._start_s = monitor.edge()
        self._end_s: float | None = None
        self._is_over = False
        self._so_far = SoFar(monitor, self._start_s)
        monitor.begins(self)
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

    def abandon(self) -> None:
        """Forget the window: what it is of did not begin."""
        self._monitor.forget(self)
        self._monitor.note({"abandoned": self.name, "start_s": self._start_s})

    @property
    def time_s(self) -> float:
        """Seconds of the window; up to now, if it is not over."""
        return (time.monotonic() if self._end_s is None else self._end_s) - self._start_s

    @cached_property
    def devices(self) -> dict[str, DeviceEnergy]:
        """What each device used, by its name. Raises OpcostError if the window is not over.

        Waits for the sensors to show the end of the window, a few tenths of a second.
        """
        if self._end_s is None:
            raise OpcostError(f"the window {self.name!r} is not over: call its stop() first")
        found = self._monitor.energy(self._start_s, self._end_s)
        self._monitor.was_asked(self)
        return self._of_chosen(found)

    def _of_chosen(self, found: dict[str, DeviceEnergy]) -> dict[str, DeviceEnergy]:
        return {
            name: each
            for name, each in found.items()
            if self._chosen is None or name in self._chosen
        }

    def line(self) -> str:
        """The window in one line, as for a log: name, time, energy and mean power of each device.

        Reasons and what qualifies the energies are in `str`, and the same for most windows of a
        program. For a window that is not over, up to now.
        """
        if self._end_s is not None:
            return as_line(self.name, self.time_s, self.devices)
        now_s = self._monitor.mark()
        devices = self._of_chosen(self._so_far.energy(now_s))
        return as_line(f"{self.name} so far", now_s - self._start_s, devices)

    def __repr__(self) -> str:
        """Its name, and what is known of it without waiting for the sensors."""
        if self._end_s is None:
            return f"<Window {self.name!r}, not over>"
        if "devices" not in vars(self):
            return f"<Window {self.name!r}: {seconds(self.time_s)}>"
        return f"<Window {as_line(repr(self.name), self.time_s, self.devices)}>"

    def __str__(self) -> str:
        if self._end_s is None:
            return f"{self.name}: not over"
        return "\n".join(as_text(self.name, self.time_s, self.devices))


@contextmanager
def measure(
    name: str = "window", devices: Sequence[str] | None = None, monitor: Monitor | None = None
) -> Iterator[Window]:
    """The energy of a block of code; it has a window also if the block raises.

    `devices` are named as in targets (`cuda:0`, `cpu`): by default, all that this process may see.
    The first window of a process chooses what is read: later ones may have some of these, or those
    of another `monitor`. Raises OpcostError for others.
    """
    window = start(name, devices, monitor)
    try:
        yield window
    finally:
        window.stop()


def start(
    name: str = "window", devices: Sequence[str] | None = None, monitor: Monitor | None = None
) -> Window:
    """Begin a window, which `stop` ends. Arguments as for `measure`."""
    if not isinstance(name, str) or not name.isprintable():
        raise OpcostError(f"the name of a window is {name!r}: give text of one line")
    if monitor is not None and monitor.is_closed:
        raise OpcostError(f"the monitor of window {name!r} is closed: open another")
    if monitor is None:
        return Window(name, _of_this_process(devices), devices)
    _check_among(devices, monitor, f"the monitor of window {name!r} reads")
    return Window(name, monitor, devices)


def _of_this_process(devices: Sequence[str] | None) -> Monitor:
    """The monitor that all windows of this process share; a fork has another."""
    global _shared
    with _lock:
        if _shared is None or not _shared.is_running:
            _shared = Monitor(devices)
        _check_among(devices, _shared, "the first window of this process chose")
        return _shared


def _check_among(devices: Sequence[str] | None, monitor: Monitor, known: str) -> None:
    """Raise OpcostError for devices that a monitor does not know."""
    names = [*monitor.devices, *monitor.missing]
    if devices is not None and set(devices) - set(names):
        raise OpcostError(
            f"{known} the devices {', '.join(names)}: for others, open a Monitor of them, and give "
            "it to the window"
        )
