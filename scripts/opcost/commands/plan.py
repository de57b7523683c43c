"""`opcost plan`."""

from typing import Any

import click

from opcost.commands.run import budget, requested, verbosity, what_to_measure
from opcost.runs.workflow import run_workflow


@click.command()
@what_to_measure
@verbosity
def command(max_device_time: float | None, verbose: bool, **named: Any) -> None:
    """Print what `opcost run` would measure, in how much time and memory; measure nothing.

    Takes the arguments of opcost run, and extracts the models.

    \b
    opcost plan resnet50 --batch 1,8,32
    opcost plan "resnet*" --device cuda --max-device-time 10min
    """
    asked = requested(budget(max_device_time), **named)
    if code := run_workflow(asked.settings, "plan", verbose, prints=True).code:
        raise SystemExit(code)
