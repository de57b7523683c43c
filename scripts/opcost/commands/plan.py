"""`opcost plan`."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch

from opcost.commands.parameters import DATABASES
from opcost.commands.run import budget, requested, verbosity, what_to_measure
from opcost.costs.model_argument import config_path
from opcost.databases.database import default_databases
from opcost.devices.kinds import kind_of
from opcost.files import check_output
from opcost.runs.prediction_study import calibration, sizes, write_study
from opcost.runs.request import DEFAULT_STUDY
from opcost.runs.workflow import run_workflow, snakefile_option
from opcost.terminal import show
from opcost.text import counted, percent, table
from opcost.tuples.containment import tuples_of


@click.command()
@what_to_measure
@click.option(
    "--calibrate",
    metavar="TARGET",
    help="Print which 50 tuples to measure on TARGET, so that it is predicted from other targets.",
)
@click.option(
    "--for-prediction",
    is_flag=True,
    help="Write a study of operators of many sizes, from which models to come are predicted.",
)
@DATABASES
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The study to write.")
@verbosity
def command(
    max_device_time: float | None,
    calibrate: str | None,
    for_prediction: bool,
    databases: tuple[Path, ...],
    output: Path | None,
    verbose: bool,
    **named: Any,
) -> None:
    """Print what `opcost run` would measure, in how much time and memory; measure nothing.

    Takes the arguments of opcost run, and extracts the models. With --calibrate or
    --for-prediction, it plans what predicts these models best or, without a MODEL, any.

    \b
    opcost plan resnet50 --batch 1,8,32
    opcost plan "resnet*" --device cuda --max-device-time 10min
    opcost plan --calibrate a100 -d h100 -o calibration.yaml
    opcost plan --for-prediction --device cuda -o sizes.yaml
    """
    of_run = max_device_time or verbose or named["threads"] or (calibrate and named["device"])
    predicts = bool(calibrate or for_prediction)
    if predicts and of_run:
        raise click.UsageError(
            "--max-device-time, --threads, --verbose and, with --calibrate, --device are only for "
            "the plan of a run"
        )
    if for_prediction and (calibrate or databases or not output):
        raise click.UsageError(
            "--for-prediction needs -o STUDY.yaml, and takes neither --calibrate nor --database"
        )
    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise click.UsageError(f"-o {output}: a study is a file that ends in .yaml")
    if predicts:
        _plan_study(calibrate, databases or default_databases(), output, **named)
        return
    if databases or output:
        raise click.UsageError("--database and --output need --calibrate or --for-prediction")
    asked = requested(budget(max_device_time), **named)
    if code := run_workflow(asked.settings, "plan", verbose, prints=True).code:
        raise SystemExit(code)


def _plan_study(
    target: str | None,
    databases: Sequence[Path],
    output: Path | None,
    device: str | None,
    **named: Any,
) -> None:
    """Choose what helps to predict a target or, without one, models to come."""
    if output is not None:
        check_output(
            output, [*databases, DEFAULT_STUDY, *filter(None, map(config_path, named["models"]))]
        )
    models = []
    if any(named.values()):
        study = requested({}, **named, device=None).study
        folder, limits = study.model_directory, study.extraction
        models = [tuples_of(each, folder, limits) for each in study.models.values()]
    if target is not None:
        chosen, keys = calibration(target, databases, models)
        records = [record for record, _ in chosen]
        rows = [(percent(share, 1), str(each.operator_tuple)) for each, share in chosen]
        show(f"What to measure on {target}, and how much of the uncertainty each removes:\n")
        show("\n".join(table(["", "operator tuple"], rows, left=2)))
    else:
        kind = kind_of(device)
        is_processor = kind.is_processor if kind else not torch.cuda.is_available()
        records = sizes([each for model in models for each, _ in model.kernels()], is_processor)
        name = f"{device or 'local'}_time".replace(":", "_")
        keys = {"targets": {name: {"device": device or "auto"}}, "measurement": {"energy": False}}
    if output is not None:
        write_study(output, records, keys)
        command = shlex.join(["snakemake", *snakefile_option(), "--cores", "1", "--configfile"])
        show(
            f"{counted(len(records), 'operator')} in {output}. To measure them: {command} "
            f"{shlex.quote(str(output))} (with -- plan: how long that takes)"
        )
