"""Energy sensors that hang, crash, refuse or lie: the time that was measured is kept.

A job measures an operator on the processor, with a meter of ours in place of the device's.
"""

import json

from tests.faults import rows
from tests.faults.fault import BAD, GOOD, POOR, Found, fault
from tests.faults.study import Outcome, Study
from tests.faults.verdicts import message

METER = """
import os, signal, sys, time
from opcost import jobs
import opcost.energy.meters as meters
from opcost.energy.meter import DeviceState, Meter, MeterUnavailable
from opcost.energy.sensor import Sensor

FAULT = os.environ["FAULT"]

class Faulty(Meter):
    name = "nvml_power_instant"
    assumed = Sensor(refresh_s=0.05, averaging_s=0.05, rise_s=0.05, idle_w=60.0)

    def __init__(self):
        self.missing, self.reads, self.began = {}, 0, time.monotonic()

    def power_w(self):
        self.reads += 1
        late = self.reads > 20
        if FAULT == "hangs" and late:
            time.sleep(10**6)
        if FAULT == "crashes" and late:
            os.kill(os.getpid(), signal.SIGSEGV)
        if FAULT == "permission" and late:
            raise MeterUnavailable("NVML: Insufficient Permissions")
        if FAULT == "lost" and late:
            raise MeterUnavailable("NVML: GPU is lost")
        if FAULT == "stuck":
            return 250.0
        noise = 0.5 * (hash((self.reads, "a")) % 5)
        watts = {"zero": 0.0, "garbage": 2.2e6 + noise, "ones": 4294967.295}
        return watts.get(FAULT, 250.0 + noise)

    def counter_j(self):
        elapsed_s = time.monotonic() - self.began
        return -250.0 * elapsed_s if FAULT == "backwards" else 250.0 * elapsed_s

    def state(self):
        return DeviceState(sm_clock_mhz=1000.0, power_limit_w=700.0)

    def readings(self):
        return {self.name: self.power_w}

def open_meter(kind, uuid):
    if FAULT == "init":
        time.sleep(10**6)
    if FAULT == "refused":
        raise MeterUnavailable("NVML: Insufficient Permissions")
    return Faulty()

meters.open_meter = open_meter
jobs.main(sys.argv[1:])
"""
KEPT = "status ok, the time; no energy, and why"
TIMEOUT_S = 20


def benchmarked(study: Study, kind: str) -> tuple[Outcome, dict | None]:
    """The job of an operator with a meter that has this fault, and its row."""
    output = study.rows()[0]
    conditions = json.loads((study.target / "settings.json").read_text())
    conditions["measurement"] |= {"timeout_s": TIMEOUT_S, "power_lead_in_max_s": 2.0}
    output.unlink()
    words = [
        "measure",
        output,
        "--conditions",
        json.dumps(conditions),
        "--tuples",
        study.manifest,
        "--search-path",
        study.root,
    ]
    environment = {"FAULT": kind, "PYTHONHASHSEED": "0"}
    outcome = study.python(METER, *words, environment=environment, timeout_s=90)
    return outcome, rows.read(output)[0] if output.exists() else None


def sensor(number: str, what: str, kind: str, energy: bool = False, reason: str = "") -> None:
    """A fault of a sensor. With `energy`, there may be an energy if the row is flagged."""

    def attempt(study: Study) -> Found:
        outcome, row = benchmarked(study, kind)
        if outcome.hung:
            return Found(BAD, f"hangs: killed after {outcome.seconds:.0f} s")
        if row is None:
            return Found(POOR, f"exit {outcome.code}, no row: {message(outcome)}")
        if row["status"] != "ok" or row["time_s"] is None:
            return Found(POOR, f"its time is lost: {row['status']}: {row['error']}")
        if row["energy_j"] is None:
            said = row["energy_reason"] or ""
            return Found(GOOD if said else POOR, f"time kept, no energy: {said}")
        flags = ", ".join(row["flags"])
        found = f"energy {row['energy_j']:.3g} J, power {row['power_w']:.3g} W, flags {flags}"
        if energy:
            return Found(GOOD if row["flags"] else BAD, found)
        return Found(POOR if "counter_disagrees" in row["flags"] else BAD, found)

    fault(number, what, "status ok, flagged" if energy else KEPT)(attempt)


sensor("57.1", "hangs when it is opened", "init")
sensor("57.2", "hangs in a reading", "hangs")
sensor("57.3", "crashes in a reading", "crashes")
sensor("57.4", "reads 0 W", "zero")
sensor("58.1", "loses its permission midway", "permission")
sensor("58.2", "refuses all", "refused")
sensor("58.3", "its GPU is lost", "lost")
sensor("58.4", "its counter goes backwards", "backwards", energy=True)
sensor("58.5", "its reading is stuck", "stuck", energy=True)
sensor("59.1", "reads 2.2 MW", "garbage")
sensor("59.2", "all bits are ones: 4.3 MW", "ones")
