"""The steps of a campaign: sensor, tests, study, peers, kernels."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from campaign.piece import Piece, Step
from opcost.results_folder import RESULTS, all_measurements, target_folders

JOB_S = 45.0
"""For the measurement in progress to end."""

_IDENTIFYING = re.compile("Serial Number|UUID|GUID|PDI|Process|  Name  ")


def steps(
    configfiles: Sequence[str], config: Mapping[str, str], study_s: float, loop_s: float
) -> list[Step]:
    """The steps, in order; `study_s` limits the study, `loop_s` is of each loop of a peer.

    Raises OpcostError for config files that cannot be read, and as `named_models`.
    """
    models = named_models(configfiles, config)

    def snakemake(*targets: str, **changes: str) -> list[str]:
        settings = [f"{name}={value}" for name, value in {**config, **changes}.items()]
        study = ["--configfile", *configfiles, *(["--config", *settings] if settings else [])]
        return python("snakemake", "--cores", str(os.cpu_count() or 1), *targets, *study)

    def sensor(piece: Piece, seconds: float) -> tuple[str, bool]:
        settings_of_card(piece)
        status = piece.run(snakemake("characterize"), seconds)
        return outcome(status), status == 0

    def tests(piece: Piece, seconds: float) -> tuple[str, bool]:
        # The sensor is characterised already.
        chosen = ["tests/gpu", "-m", "gpu", "-k", "not characterised", "-p", "no:cacheprovider"]
        output = piece.record / "tests.txt"
        status = piece.run(python("pytest", *chosen), seconds, output)
        lines = output.read_text(errors="replace").splitlines()
        return lines[-1].strip("= ") if lines else outcome(status), status in (0, 1)

    def study(piece: Piece, seconds: float) -> tuple[str, bool]:
        ends_s = time.monotonic() + seconds
        status = None
        runs = {
            f"study of {model}": snakemake(
                "tables",
                models=json.dumps(models[: number + 1]),
                torchvision="",
                rounds="1",
            )
            for number, model in enumerate(models)
        }
        for name, command in {**runs, "study": snakemake("tables")}.items():
            if name not in piece.done:
                status = piece.run(command, ends_s - time.monotonic(), ending_s=JOB_S)
                if status != 0:
                    break
                piece.done.add(name)
        rows = sum(len(all_measurements(folder)) for folder in target_folders(piece.root / RESULTS))
        return f"{name} {outcome(status)}; {rows} measurements so far", status == 0

    def peers(piece: Piece, seconds: float) -> tuple[str, bool]:
        return of_target("peers", piece, seconds, "--loop-s", str(loop_s))

    def kernels(piece: Piece, seconds: float) -> tuple[str, bool]:
        return of_target("kernels", piece, seconds)

    return [
        Step("sensor", 120, sensor),
        Step("tests", 130, tests),
        Step("study", JOB_S + 45, study, study_s),
        Step("peers", 3 * (loop_s + 15), peers),
        Step("kernels", 60, kernels),
    ]


def named_models(configfiles: Sequence[str], config: Mapping[str, str]) -> list[str]:
    """The models that the command or the last file names: each makes the study larger by one.

    Raises OpcostError if the command names no list.
    """
    import yaml
    from opcost.errors import OpcostError
    from opcost.plain_yaml import read_yaml

    if "models" in config:
        try:
            given = yaml.safe_load(config["models"])
        except yaml.YAMLError:
            given = None
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            raise OpcostError(
                f"--config models={config['models']}: give a list of names, as in "
                "models=[resnet18,vit_b_16]"
            )
        return given
    found = []
    for path in reversed(configfiles):
        document = read_yaml(Path(path))
        if not isinstance(document, dict):
            raise OpcostError(f"{path} is no configuration: it must hold keys with values")
        found.append(document.get("models"))
    return next((models for models in found if isinstance(models, list)), [])


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
    """Clocks, limits and modes of the card, as its own tool prints them, without its identity."""
    if shutil.which("nvidia-smi"):
        text = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True).stdout
        kept = [line for line in text.splitlines() if not _IDENTIFYING.search(line)]
        (piece.record / "nvidia-smi.txt").write_text("\n".join(kept) + "\n")
