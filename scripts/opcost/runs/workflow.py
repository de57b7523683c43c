"""Start the workflow."""

import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import opcost
from opcost.errors import OpcostError
from opcost.runs.study_file import RUN_STUDY

Only = Mapping[str, Sequence[str]]
"""The models to measure, by target."""


def run_workflow(
    only: Only | None, settings: Mapping[str, Any] | None = None, goal: str | None = None
) -> int:
    """Run Snakemake for a goal (default: everything), and return its exit code.

    `only` restricts it; `settings` are further keys of the configuration.
    """
    if importlib.util.find_spec("snakemake") is None:
        raise OpcostError("measuring needs Snakemake: pip install snakemake")
    command = [
        sys.executable,
        "-P",
        "-m",
        "snakemake",
        "--snakefile",
        str(_snakefile()),
        "--cores",
        "1",
    ]
    if RUN_STUDY.exists():
        command += ["--configfile", str(RUN_STUDY)]
    chosen = {**({} if only is None else {"only": only}), **(settings or {})}
    if chosen:
        command += ["--config", *(f"{key}={json.dumps(value)}" for key, value in chosen.items())]
    command += ["--", goal] if goal else []
    with subprocess.Popen(command) as snakemake:
        before = signal.signal(signal.SIGTERM, lambda *_: snakemake.terminate())
        try:
            return _ended(snakemake)
        finally:
            signal.signal(signal.SIGTERM, before)


def _ended(process: subprocess.Popen) -> int:
    """Its exit code. Ctrl-C reaches it as well, and it ends in its own time."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def _snakefile() -> Path:
    package = Path(opcost.__file__).resolve().parent
    return package.parent.parent / "Snakefile"
