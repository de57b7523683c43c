"""`opcost operator`."""

from collections.abc import Sequence

import click

from opcost.commands.run import budget, measure, verbosity, where_to_measure
from opcost.runs.operators import operator_variant
from opcost.runs.request import request


@click.command()
@click.argument("description")
@click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="NAME=[VALUE,...]",
    help="Values of {NAME} in the description, of an argument, or of dtype, memory_format or "
    "zeros, such as padding=[0,1,2]. Repeat it: each combination is an operator of its own.",
)
@where_to_measure
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help="Maximum number of rounds. Default: as in config/config.yaml, or 4.",
)
@verbosity
def command(
    description: str,
    axes: Sequence[str],
    device: str | None,
    threads: tuple[int, ...],
    max_device_time: float | None,
    rounds: int | None,
    verbose: bool,
) -> None:
    """Measure an operator without a model, and print its cost.

    DESCRIPTION is a call as opcost query prints it, such as "conv2d(1x64x56x56, 64x64x3x3)". An
    axis sweeps it over sizes, arguments, dtypes, or the share of zeros in its operands (zeros). A
    tuple that is measured, for a model or without one, is not measured again; an invalid call is
    refused before anything is measured.

    \b
    opcost operator "conv2d(1x64x56x56, 64x64x3x3, padding=[1,1])" --axis padding=[0,1,2]
    opcost operator "conv2d(1x{c}x56x56, {c}x{c}x{k}x{k})" --axis c=[32,64] --axis k=[1,3,5]
    opcost operator "linear(64x1024, 1024x1024)" --axis zeros=[0,0.5,0.9]
    """
    settings = {**budget(max_device_time), **({} if rounds is None else {"rounds": rounds})}
    measure(request([operator_variant(description, axes)], device, threads, settings), verbose)
