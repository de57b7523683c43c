"""The steps of a campaign: sensor, tests, study, peers, kernels."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from opcost.results_folder import RESULTS, all_measurements, target_folders

from campaign.piece import Piece, Step

TABLES = ("models", "compare")
"""All tables; the report is made at home."""
TABLES_S = 40.0
"""To make them when the time for measuring is over."""
JOB_S = 45.0
"""For the measurement in progress to end."""
# With a budget, what explains most of the models is measured first, and models before it.
_BY_IMPORTANCE = {"max_device_time_s": "1000000000"}
# The profile has priorities hold within a sample of the jobs that are ready.
_ALL_READY = "1000000"
_NOTHING_MORE = {"max_device_time_s": "0.001", "measured_again": "0"}


def steps(
    configfiles: Sequence[str], config: Mapping[str, str], study_s: float, loop_s: float
) -> list[Step]:
    """The steps, in order; `study_s` limits the study, `loop_s` is of each loop of a peer."""

    def snakemake(targets: Sequence[str], changes: Mapping[str, str]) -> list[str]:
        settings = [f"{name}={value}" for name, value in {**changes, **config}.items()]
        study = ["--configfile", *configfiles, *(["--config", *settings] if settings else [])]
        cores = ["--cores", str(os.cpu_count() or 1), "--scheduler-subsample", _ALL_READY]
        return python("snakemake", *cores, *targets, *study)

    def sensor(piece: Piece, seconds: float) -> tuple[str, bool]:
        settings_of_card(piece)
        status = piece.run(snakemake(["characterize"], {}), seconds)
        return outcome(status), status == 0

    def tests(piece: Piece, seconds: float) -> tuple[str, bool]:
        # The sensor is characterised already.
        chosen = ["tests/gpu", "-m", "gpu", "-k", "not characterised", "-p", "no:cacheprovider"]
        output = piece.record / "tests.txt"
        status = piece.run(python("pytest", *chosen), seconds, output)
        lines = output.read_text(errors="replace").splitlines()
        return lines[-1].strip("= ") if lines else outcome(status), status in (0, 1)

    def study(piece: Piece, seconds: float) -> tuple[str, bool]:
        measure = snakemake(TABLES, _BY_IMPORTANCE)
        status = piece.run(measure, seconds - TABLES_S, ending_s=JOB_S)
        said = outcome(status)
        if status is None:
            tables = piece.run(snakemake(TABLES, _NOTHING_MORE), TABLES_S)
            said += f", tables of what is measured {outcome(tables)}"
        rows = sum(len(all_measurements(folder)) for folder in target_folders(piece.root / RESULTS))
        return f"{said}; {rows} measurements", status == 0

    def peers(piece: Piece, seconds: float) -> tuple[str, bool]:
        return of_target("peers", piece, seconds, "--loop-s", str(loop_s))

    def kernels(piece: Piece, seconds: float) -> tuple[str, bool]:
        return of_target("kernels", piece, seconds)

    return [
        Step("sensor", 120, sensor),
        Step("tests", 90, tests),
        Step("study", TABLES_S + JOB_S + 30, study, study_s),
        Step("peers", 3 * (loop_s + 15), peers),
        Step("kernels", 60, kernels),
    ]


def python(*arguments: str) -> list[str]:
    """A module of this Python, as a command."""
    return [sys.executable, "-m", *arguments]


def of_target(module: str, piece: Piece, seconds: float, *options: str) -> tuple[str, bool]:
    """Run a module of the campaign on the first target that was measured; a failure is final."""
    output = piece.record / f"{module}.csv"
    folders = target_folders(piece.root / RESULTS)
    if not folders:
        return "nothing is measured yet", False
    command = python(f"campaign.{module}", str(folders[0]), str(output), *options)
    status = piece.run(command, seconds)
    return outcome(status), status is not None


def outcome(status: int | None) -> str:
    """What to say of a command that ended with this status."""
    if status is None:
        return "stopped"
    return "complete" if status == 0 else f"failed with status {status}"


def settings_of_card(piece: Piece) -> None:
    """Clocks, limits, modes and processes of the card, as its own tool prints them."""
    if shutil.which("nvidia-smi"):
        text = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True).stdout
        (piece.record / "nvidia-smi.txt").write_text(text)
