"""Start the workflow."""

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import opcost
from opcost.configuration import on_command_line
from opcost.errors import OpcostError, install_extra
from opcost.results_folder import all_measurements, target_folders
from opcost.runs.display import Display
from opcost.terminal import show
from opcost.workers.isolation import killed_by

_FOUND = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")
"""Paths at which Snakemake finds a workflow, in order."""

_LONGEST = 100_000
"""Linux limits an argument of a process to 128 KiB."""


class Ended(NamedTuple):
    """The exit code for the user (0, 1, or that of a shell for the signal that ended it), and the
    number of jobs that ran.
    """

    code: int
    jobs: int


def run_workflow(
    settings: Mapping[str, Any],
    goal: str | None = None,
    verbose: bool = False,
    prints: bool = False,
) -> Ended:
    """Show and run the Snakemake command with these keys of the configuration, for a goal (default:
    everything) that `prints` to standard output or not. `verbose` shows all output of Snakemake.
    """
    if importlib.util.find_spec("snakemake") is None:
        raise OpcostError(f"measuring needs Snakemake: {install_extra('measure')}")
    if not os.access(Path.cwd(), os.W_OK):
        raise OpcostError(f"{Path.cwd()} cannot be written to: run in a folder that can")
    values = {key: on_command_line(value) for key, value in settings.items()}
    if max(map(len, values.values()), default=0) > _LONGEST:
        raise OpcostError("these models are too many for one command: name fewer at once")
    words = [*snakefile_option(), "--cores", "1", *(["--quiet", "host"] if verbose else [])]
    words += ["--config", *(f"{key}={value}" for key, value in values.items())] if values else []
    words += ["--", goal] if goal else []
    show(shlex.join([_program(), *words]), err=True)
    command = [sys.executable, "-P", "-m", "snakemake", *words]
    signals: list[int] = []
    if verbose:
        with _interruptible(subprocess.Popen(command), signals.append) as process:
            status = process.wait()
        return Ended(_code(status, signals), 1)
    environment = os.environ | {"OPCOST_DISPLAY": "yes"}
    display = Display(sys.stderr, bar=not prints)
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=None if prints else subprocess.PIPE,
        stderr=subprocess.PIPE if prints else subprocess.STDOUT,
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
    """Handle interrupts. Ctrl-C also reaches Snakemake and its jobs, which then end. SIGTERM is
    passed on to all of them, because Snakemake would first wait for its jobs; a second one kills
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


def snakefile_option() -> list[str]:
    """The option that names the workflow, unless Snakemake finds it in this folder."""
    found = next((name for name in _FOUND if Path(name).exists()), None)
    package = Path(opcost.__file__).resolve().parent
    installed = package / "installed" / "Snakefile"  # of the wheel (setup.py)
    snakefile = installed if installed.exists() else package.parents[1] / "Snakefile"
    is_found = found is not None and Path(found).samefile(snakefile)
    return [] if is_found else ["--snakefile", str(snakefile)]


def _program() -> str:
    """The snakemake command, by its path if a shell would find none, or another one."""
    beside = Path(sys.executable).with_name("snakemake")
    if not beside.exists() or shutil.which("snakemake") == str(beside):
        return "snakemake"
    here = Path.cwd()
    return str(beside.relative_to(here) if beside.is_relative_to(here) else beside)
