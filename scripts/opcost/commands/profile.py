"""`opcost profile`."""

from typing import Any

import click

from opcost.commands.run import budget, measure, requested, verbosity, what_to_measure
from opcost.costs.in_context import GROUPINGS
from opcost.runs.layers import layer_answer, layer_configs
from opcost.runs.profile import profile
from opcost.runs.request import request
from opcost.runs.workflow import run_workflow


@click.command()
@what_to_measure
@verbosity
@click.option(
    "--by",
    type=click.Choice(GROUPINGS),
    default="operator",
    show_default=True,
    help="The rows of the table.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Number of rows to list for each model: calls in order, others costliest first.",
)
@click.option(
    "--layers",
    is_flag=True,
    help="Instead, run each kind of layer isolated, on its arguments inside the model, for its "
    "energy, and print a table of layers. Each layer is measured like a model.",
)
def command(
    max_device_time: float | None, verbose: bool, by: str, top: int, layers: bool, **named: Any
) -> None:
    """Print where the time of MODELS goes inside the running model, call by call.

    Compares the time of operators in context with isolated operators, and the estimate with the
    end-to-end measurement. Exits with 3 if either is missing. Takes the arguments of opcost run;
    without a MODEL, it profiles the study. Only what has no result is measured, once: opcost run
    measures further rounds, for narrower intervals.

    \b
    opcost profile resnet18 --by module
    opcost profile bert.yaml --by call --top 50
    opcost profile resnet18 --layers
    """
    settings = {**budget(max_device_time), "rounds": 1}
    asked = requested(settings, **named)
    if not layers:
        measure(asked, verbose, lambda asked: profile(asked, by, top))
        return
    if code := run_workflow(asked.settings, "models", verbose).code:
        raise SystemExit(code)
    with_layers = request(layer_configs(asked), named["device"], named["threads"], settings)
    measure(with_layers, verbose, layer_answer)
