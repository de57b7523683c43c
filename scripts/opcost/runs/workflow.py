"""Start the workflow."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import opcost
from opcost.errors import OpcostError
from opcost.results_folder import all_measurements, target_folders
from opcost.runs.display import Display
from opcost.runs.study_file import RUN_STUDY, read_studies
from opcost.workers.isolation import killed_by

Only = Mapping[str, Sequence[str]]
"""The models to measure, by target."""


class Ended(NamedTuple):
    """The exit code for the user (0, 1, or that of a shell for the signal that ended it), and how
    many jobs have run.
    """

    code: int
    jobs: int


def run_workflow(
    only: Only | None,
    settings: Mapping[str, Any] | None = None,
    goal: str | None = None,
    verbose: bool = False,
) -> Ended:
    """Run Snakemake for a goal (default: everything), which prints to standard output.

    `only` restricts it; `settings` are further keys of the configuration; `verbose` shows all that
    Snakemake says.
    """
    if importlib.util.find_spec("snakemake") is None:
        raise OpcostError("measuring needs Snakemake: pip install snakemake")
    command = [sys.executable, "-P", "-m", "snakemake", "--snakefile", str(_snakefile())]
    command += ["--cores", "1", *(["--quiet", "host"] if verbose else [])]
    if not os.access(Path.cwd(), os.W_OK):
        raise OpcostError(f"{Path.cwd()} cannot be written to: run in a folder that can")
    if read_studies().runs:
        command += ["--configfile", str(RUN_STUDY)]
    chosen = {**({} if only is None else {"only": only}), **(settings or {})}
    if chosen:
        command += ["--config", *(f"{key}={json.dumps(value)}" for key, value in chosen.items())]
    command += ["--", goal] if goal else []
    signals: list[int] = []
    if verbose:
        with _interruptible(subprocess.Popen(command), signals.append) as process:
            status = process.wait()
        return Ended(_code(status, signals), 1)
    environment = os.environ | {"OPCOST_DISPLAY": "yes"}
    display = Display(sys.stderr, bar=goal is None)
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE if goal is None else None,
        stderr=subprocess.PIPE if goal else subprocess.STDOUT,
        text=True,
        errors="replace",
    )

    def interrupt(number: int) -> None:
        signals.append(number)
        display.interrupt()

    with _interruptible(process, interrupt), closing(display):
        for line in process.stdout or process.stderr or ():
            display.show(line.rstrip("\n"))
        status = process.wait()
    return Ended(_code(status, signals), display.jobs)


def _code(status: int, signals: Sequence[int]) -> int:
    if not signals:
        if status < 0:
            print(f"opcost: Snakemake was {killed_by(-status)}", file=sys.stderr)
        return int(status != 0)
    text = "Nothing is measured yet: the same command begins again."
    if any(map(all_measurements, target_folders())):
        text = "What was measured is kept: the same command goes on."
    print(f"Interrupted. {text}", file=sys.stderr)
    return 128 + signals[0]


@contextmanager
def _interruptible(
    process: subprocess.Popen, interrupt: Callable[[int], None]
) -> Iterator[subprocess.Popen]:
    """Ctrl-C reaches Snakemake and its jobs as well, which then end; a request to terminate is
    passed on to all of them, because Snakemake would first wait for its jobs. A second one kills
    them.
    """
    asked = []

    def terminate(number: int, _frame: Any) -> None:
        interrupt(number)
        asked.append(number)
        with suppress(psutil.Error):
            started = psutil.Process(process.pid)
            for each in [started, *started.children(recursive=True)]:
                with suppress(psutil.Error, ProcessLookupError):
                    if os.getpgid(each.pid) == os.getpgid(0):
                        each.kill() if len(asked) > 1 else each.terminate()

    handlers = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda number, _: interrupt(number)),
        signal.SIGTERM: signal.signal(signal.SIGTERM, terminate),
    }
    try:
        yield process
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _snakefile() -> Path:
    """That of the clone, or of the wheel (setup.py)."""
    package = Path(opcost.__file__).resolve().parent
    installed = package / "installed" / "Snakefile"
    return installed if installed.exists() else package.parents[1] / "Snakefile"
