"""Run one trial of a known load against the simulated GPU, and print what came of it as JSON.

The load is a sleep of 1 ms on the CPU; only the power is the simulated GPU's.
"""

import json
import sys
import time

from conftest import QUICK
from opcost import protocol
from opcost.benchmark import _trial_columns
from opcost.device import open_device
from opcost.disturbance import NoWatch
from opcost.energy import MeterUnavailable, NvmlMeter
from opcost.study import Target


class Sleep:
    """One iteration sleeps for a millisecond."""

    rotation = 1

    def run(self, iterations):
        for _ in range(iterations):
            time.sleep(1e-3)


def open_meter(_device):
    """The meter of the simulated GPU, or of one that is not there."""
    return NvmlMeter(sys.argv[1])


if __name__ == "__main__":
    device = open_device(Target("cpu", 1, False))
    try:
        NvmlMeter(sys.argv[1])
    except MeterUnavailable as unavailable:
        print(unavailable, file=sys.stderr)
    trial = protocol.run_trial(Sleep(), device, NoWatch(), QUICK, open_meter)
    print(json.dumps(_trial_columns(trial, NoWatch())))
