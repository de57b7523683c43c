"""What a row says when the sensor, or the device, is at fault: one line for each fault.

Whole trials of a load of 300 W, 1e-4 s per call, on the simulated card (tests/simulated_nvml).

    PYTHONPATH=scripts python -m tests.benchmarks.power_faults
"""

import dataclasses
import tempfile
from functools import partial
from pathlib import Path

from opcost.energy.nvml import NvmlMeter
from opcost.energy.sensor import Sensor
from opcost.measuring.trial import run_trial
from opcost.study import default_measurement

from tests.simulated_nvml.card import UUID, Card, CardDevice, CardLoad, build
from tests.stations import station_of

WATTS, ITERATION_S = 300.0, 1e-4
KNOWN = Sensor(refresh_s=0.1, averaging_s=0.1, rise_s=0.1, idle_w=60, source="measured")

FAULTS = {
    "none": {},
    "refresh of 3 s": {"refresh_s": 3},
    "averages over 1 s, not 0.1 s": {"window_s": 1},
    "instantaneous reading missing": {"fail_instant": 3},
    "gain of readings 0.9": {"gain": 0.9},
    "gain of readings and counter 1.04": {"gain": 1.04, "counter_gain": 1.04},
    "noise of 15 %": {"noise": 0.15},
    "coarse steps of 50 W": {"quantum_w": 50},
    "reading sticks after 1.7 s": {"stuck_at_s": 1.7},
    "a tenth of the refreshes skipped": {"skip": 0.1},
    "reading drifts by 3 %/s": {"gain_drift_per_s": 0.03},
    "leakage of 15 W/K": {"thermal_w_per_k": 15, "thermal_s": 60},
    "rise time constant 1.5 s": {"rise_s": 1.5},
    "gain of counter 1.2": {"counter_gain": 1.2},
    "counter steps of 1 s": {"counter_step_s": 1},
    "counter loses at frequent reads": {"counter_loss": 0.5},
    "no counter": {"fail_counter": 3},
    "power limit reached": {"power_cap_w": 250},
    "limit reached, no throttle fields": {"power_cap_w": 250, "fail_throttle": 3},
    "thermal slowdown": {"sw_thermal_share": 0.1},
    "power brake": {"brake_share": 0.1},
    "another process": {"other_processes": 1},
    "busy when idle": {"idle_w": 150},
    "MIG mode": {"mig": 1},
    "missing permission": {"fail_all": 4},
    "no such GPU": {"fail_device": 6},
    "GPU lost at once": {"lost_at_s": 0},
    "GPU lost under load": {"lost_at_s": 2.0},
    "reads 0 W": {"gain": 0},
    "readings 5 times too large": {"gain": 5},
    "readings 10,000 times too large": {"gain": 1e4},
}


def trial(card, faults):
    """A trial on the card with those faults."""
    card.reset(**{"noise": 0.003, **faults})
    device = CardDevice(card, CardLoad(card, ITERATION_S, WATTS))
    settings = dataclasses.replace(default_measurement(), max_repeats=0)

    def find_sensor(meter):
        averages = meter.name == "nvml_power_usage"
        return dataclasses.replace(KNOWN, averaging_s=1.0) if averages else KNOWN

    station = station_of(device, settings, meter=partial(NvmlMeter, UUID), clock=card)
    return run_trial(device, dataclasses.replace(station, find_sensor=find_sensor), settings)


def main():
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        card = Card(build(Path(folder)))
        print(f"{'fault':36} {'energy, error':>14}  flags, or why there is no energy")
        for name, faults in FAULTS.items():
            found = trial(card, faults)
            if found.energy is None:
                print(f"{name:36} {'null':>14}  {found.power_reason}")
                continue
            window = found.power.window
            watts = card.steady_power_w(window.start_s, window.end_s)
            error = found.energy.value / (watts * ITERATION_S) - 1
            print(f"{name:36} {error:>+14.2%}  {', '.join(found.flags) or '-'}")


if __name__ == "__main__":
    main()
