"""Factories and models that exit, crash, hang, change torch's global state, or grow."""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from faults import rows
from faults.fault import POOR, Found, fault
from faults.study import Outcome, Study
from faults.verdicts import all_of, held, refused, works

NAMED = "refused, with the model's name and the user's file, by study and explain alike"
LINEAR = "    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())\n"
HEAD = "import ctypes, os, signal, sys, time\nimport torch\n"


def factory(*lines: str, top: str = "") -> str:
    """The source of a module whose factory does this before it makes a model."""
    body = "".join(f"    {line}\n" for line in lines)
    return f"{HEAD}{top}\ndef make():\n{body}{LINEAR}"


def fails(number: str, what: str, source: str, *says: str, line: bool = False) -> None:
    """A fault: a factory that ends otherwise than with a model."""

    def attempt(study: Study) -> Found:
        config = study.add_model(source)
        places = (r"bad\.py.{0,20}\d+",) if line else ()
        explain = study.opcost("explain", config)
        if explain.code == 3:
            return Found(POOR, "explain: exit 3, which means that something is missing")
        return all_of(
            refused(study.snakemake(), "bad", *says, *places),
            refused(explain, "bad", *says, *places),
        )

    fault(number, what, NAMED)(attempt)


fails("39.1", "the factory calls sys.exit(0)", factory("sys.exit(0)"), "exit", line=True)
fails("39.2", "the factory calls os._exit(0)", factory("os._exit(0)"), "exit|ended")
fails("40.1", "the factory calls sys.exit(3)", factory("sys.exit(3)"), "exit", line=True)
fails("40.2", "the factory crashes", factory("ctypes.string_at(0)"), "SIGSEGV|signal 11")
fails(
    "40.3",
    "the factory raises MemoryError",
    factory("raise MemoryError"),
    "MemoryError|memory",
    line=True,
)
fails(
    "40.4",
    "its module raises ValueError",
    factory(top="raise ValueError('no luck')\n"),
    "no luck",
    line=True,
)
fails(
    "40.5",
    "its module is no Python",
    HEAD + "def make(:\n",
    "(?i)syntax|not valid Python",
    r"bad\.py",
)


@fault("40.6", "the factory forks", "what it forked does not outlive the job")
def forks(study: Study) -> Found:
    trace = study.root / "child"
    study.add_model(
        factory(
            "child = os.fork()",
            "if child == 0:",
            "    time.sleep(600)",
            "    os._exit(0)",
            f"open({str(trace)!r}, 'a').write(f'{{child}}\\n')",
        )
    )
    outcome = study.snakemake()
    alive = []
    for process in map(int, trace.read_text().split() if trace.exists() else []):
        with contextlib.suppress(OSError):
            if "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]:
                alive.append(process)
                os.kill(process, signal.SIGKILL)
    return held(not alive, f"exit {outcome.code}; {len(alive)} forked processes live on", POOR)


@fault("41.1", "the factory hangs", NAMED)
def hangs(study: Study) -> Found:
    study.add_model(factory("time.sleep(10**6)"))
    study.measure_with(timeout_s=5)
    return refused(study.snakemake(timeout_s=60), "bad", "(?i)timeout|gave up|time")


def model_row(study: Study) -> dict:
    """The row of the model `bad`."""
    return rows.read(study.target / "models" / "bad.parquet")[0]


@fault("42.1", "the factory sets two threads, float64 and deterministic mode", "refused or flagged")
def global_state(study: Study) -> Found:
    study.add_model(
        factory(
            "torch.set_num_threads(2)",
            "torch.set_default_dtype(torch.float64)",
            "torch.use_deterministic_algorithms(True)",
        )
    )
    outcome = study.snakemake()
    if outcome.code != 0:
        return refused(outcome, "bad", "threads")
    row = model_row(study)
    if row["status"] != "ok":
        return held("thread" in row["error"], f"row {row['status']}: {row['error']}", POOR)
    told = {*row["flags"]} - {"disturbed", "drifting", "sentinel_quicker"}
    return held(bool(told), f"exit 0, ok, flags {row['flags']}")


GROWS = """
class Grows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        for _ in range(min(self.calls, 200)):
            x = torch.relu(x)
        return x

def make():
    return Grows()
"""
RANDOM = """
import random

class Random(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) if random.random() < 0.5 else torch.sigmoid(torch.tanh(x))

def make():
    return Random()
"""


def varies(number: str, what: str, source: str) -> None:
    """A fault: a model that executes other calls from run to run."""

    def attempt(study: Study) -> Found:
        study.add_model(HEAD + source)
        outcome = study.snakemake()
        if outcome.code != 0:
            return refused(outcome, "bad", "calls")
        row = model_row(study)
        told = {*(row["flags"] or [])} - {"disturbed", "drifting", "sentinel_quicker"}
        said = bool(told) or "call" in (row["error"] or "")
        return held(said, f"exit 0, row {row['status']}, flags {row['flags']}", POOR)

    fault(number, what, "flagged, or refused")(attempt)


varies("43.1", "forward executes more calls each time", GROWS)
varies("43.2", "forward takes a branch at random", RANDOM)


def runs(number: str, what: str, source: str, judge: Callable[[Study, Outcome], Found]) -> None:
    """A fault: a model that is odd, and may be."""

    def attempt(study: Study) -> Found:
        study.add_model(HEAD + source)
        return judge(study, study.snakemake())

    fault(number, what, "measured, or refused with the model's name")(attempt)


def measured(flag: str = "") -> Callable[[Study, Outcome], Found]:
    def judge(study: Study, outcome: Outcome) -> Found:
        if outcome.code != 0:
            return refused(outcome, "bad")
        row = model_row(study)
        fine = row["status"] == "ok" and (not flag or flag in row["flags"])
        return works(outcome, wrong="" if fine else f"row {row['status']}, flags {row['flags']}")

    return judge


def not_made(*says: str) -> Callable[[Study, Outcome], Found]:
    return lambda study, outcome: refused(outcome, "bad", *says)


def module(forward: str, more: str = "") -> str:
    """The source of a model with this forward."""
    lines = f"class Odd(torch.nn.Module):\n    def forward(self, x):\n        {forward}\n"
    return f"{lines}\ndef make():\n    model = Odd()\n    {more or 'pass'}\n    return model\n"


runs(
    "44.1",
    "the factory returns no module",
    "def make():\n    return 5\n",
    not_made("int", "nn.Module"),
)
runs("44.2", "the factory is not there", "def other():\n    pass\n", not_made("make"))
runs("44.3", "forward prints", module("print('hello'); return torch.relu(x)"), measured())
runs(
    "44.4",
    "the model has hooks",
    module("return torch.relu(x)", "model.register_forward_hook(lambda *_: None)"),
    measured(),
)
runs(
    "44.5",
    "a branch that depends on values",
    module("return torch.relu(x) if x.sum() > 0 else torch.tanh(x)"),
    measured(),
)
runs("44.6", "outputs that are NaN", module("return x / 0 * 0"), measured("degenerate_values"))
runs("44.7", "forward changes its input", module("return x.mul_(1e30)"), measured())
runs(
    "44.8",
    "forward writes files",
    module("open('written', 'w').write('x'); return torch.relu(x)"),
    measured(),
)
