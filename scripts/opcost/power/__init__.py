"""The energy of any code: windows around it, measured by the power sensors of this machine.

>>> from opcost import power
>>> with power.measure("epoch") as window:
...     train_one_epoch()
>>> print(window)                            # a table: a row for each device
>>> print(window.line())                     # one line, as for each epoch of a loop
>>> for name, found in window.devices.items():
...     found.energy or found.reason         # joules with their 95 % interval, or why not

Windows nest and overlap. A process of its own reads the sensors, from the first window on; it ends
with this one, however this one ends. PyTorch is not needed; if it is loaded and uses a GPU, the
edges of a window wait for the GPU.

`read_windows` has the windows of a recording, such as `opcost measure --output` writes.
`set_power_limit` and `reset_power_limit` set the power limit of an NVIDIA GPU; `sweep_limits` finds
the one at which a step of yours takes the least energy x time squared. `power_cap_profiler`,
`set_power_cap` and `reset_power_cap` do this with the calls of SustainableML.
"""

from opcost.power.cap_profiler import power_cap_profiler
from opcost.power.limits import (
    reset_power_cap,
    reset_power_limit,
    set_power_cap,
    set_power_limit,
    sweep_limits,
)
from opcost.power.monitor import Monitor
from opcost.power.recording import read_windows
from opcost.power.windows import Window, log, measure, start

__all__ = [
    "Monitor",
    "Window",
    "log",
    "measure",
    "power_cap_profiler",
    "read_windows",
    "reset_power_cap",
    "reset_power_limit",
    "set_power_cap",
    "set_power_limit",
    "start",
    "sweep_limits",
]
