"""Factories and models that exit, crash, hang, change torch's global state, or grow."""

import contextlib
import os
import signal
from pathlib import Path

from tests.faults.fault import POOR, Found, fault
from tests.faults.study import Study
from tests.faults.verdicts import all_of, held, refused

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
    if "extraction:" in (study.root / "workflow/schemas/config.schema.yaml").read_text():
        study.configure(extraction={"timeout_s": 5})
    return refused(study.snakemake(timeout_s=60), "bad", "(?i)timeout|gave up|time")
