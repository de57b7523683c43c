"""`opcost profile`."""

from typing import Any

import click

from opcost.commands.run import budget, measure, requested, verbosity, what_to_measure
from opcost.runs.layers import layer_answer, layer_configs, layers_to_come
from opcost.runs.profile import profile
from opcost.runs.request import Request, request


class _Kind(click.Choice[str]):
    """The kind of rows, with a hint for layers."""

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        if value in ("layer", "layers"):
            self.fail(
                f"{value!r}: --by module shows the modules inside the running model, and --layers "
                "runs each kind of layer isolated, for its energy"
            )
        return super().convert(value, param, ctx)


@click.command()
@what_to_measure
@verbosity
@click.option(
    "--by",
    type=_Kind(["operator", "tuple", "module", "call"]),
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
    help="Then run each kind of layer isolated, on its arguments inside the model, for its energy, "
    "and print a table of layers instead of operators. This takes further measurements, also of "
    "the model end to end.",
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

    def first_answer(asked: "Request") -> tuple[str, bool]:
        to_come = layers_to_come(asked) if layers else None
        return profile(asked, by, top) if to_come is None else (to_come, True)

    settings = {**budget(max_device_time), "rounds": 1}
    asked = requested(settings, **named)
    measure(asked, verbose, first_answer)
    if layers:
        with_layers = request(layer_configs(asked), named["device"], named["threads"], settings)
        measure(with_layers, verbose, layer_answer)
