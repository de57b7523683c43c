"""The energy of any code: windows around it, measured by the power sensors of this machine.

>>> from opcost import power
>>> with power.measure("epoch") as window:
...     train_one_epoch()
>>> print(window)                            # a table: a row for each device
>>> window.devices["cuda:0"].energy          # joules with their 95 % interval, or None
>>> window.devices["cuda:0"].reason          # why there are none

Windows nest and overlap. A process of its own reads the sensors, from the first window on; it ends
with this one, however this one ends. PyTorch is not needed; if it is loaded and uses a GPU, the
edges of a window wait for the GPU.
"""

from opcost.power.log import log
from opcost.power.monitor import Monitor
from opcost.power.windows import Window, measure, start

__all__ = ["Monitor", "Window", "log", "measure", "start"]
