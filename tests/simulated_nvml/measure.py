"""Run one trial against the simulated GPU in real time, and print what came of it as JSON.

An iteration sleeps for a millisecond; of the load, the simulated GPU knows 250 W for as long.
"""

import ctypes
import json
import sys
import time

from opcost.devices.device import open_device
from opcost.devices.disturbance import Watch
from opcost.energy.nvml import NvmlMeter
from opcost.measuring.benchmark import trial_columns
from opcost.measuring.trial import run_trial
from opcost.target import Target

from tests.quick_measurement import QUICK
from tests.stations import station_of

ITERATION_S = 1e-3


class Sleep:
    """Work that draws power while this process sleeps."""

    def __init__(self):
        self._card = ctypes.CDLL("libnvidia-ml.so.1")

    rotation = 1
    in_use = False

    def run(self, iterations):
        """Sleep for a millisecond each; the card is busy a little longer, as with queued work."""
        seconds = iterations * ITERATION_S
        self._card.simulated_run(ctypes.c_double(seconds * 1.05), ctypes.c_double(250.0))
        time.sleep(seconds)


if __name__ == "__main__":
    device = open_device(Target("cpu", 1, False))
    watch = Watch()
    station = station_of(device, QUICK, watch, meter=lambda: NvmlMeter(sys.argv[1]))
    trial = run_trial(Sleep(), station, QUICK)
    print(json.dumps(trial_columns(trial, watch), default=str))
