"""`opcost power-limit`."""

import json

import click

from opcost.commands.parameters import Number
from opcost.terminal import show


@click.command()
@click.argument("watts", type=Number(min=0, min_open=True), required=False)
@click.option("--reset", is_flag=True, help="Set the default of the GPU.")
@click.option(
    "--gpu", default="0", show_default=True, help="The GPU's number, or the start of its UUID."
)
@click.option("--json", "as_json", is_flag=True, help="Print the limits of all GPUs as JSON.")
def command(watts: float | None, reset: bool, gpu: str, as_json: bool) -> None:
    """Show the power limits of all GPUs, or set the limit of one to WATTS.

    The limit lasts until it is set again or the driver is unloaded, as at a restart. Setting it
    needs root or CAP_SYS_ADMIN, and waits while a study measures on the GPU. For a study, give its
    target a power_limit_w, which is restored afterwards.

    \b
    opcost power-limit
    opcost power-limit 300 --gpu 0
    opcost power-limit --reset
    """
    from dataclasses import asdict

    from opcost.power.limits import (
        name_of,
        pending,
        power_limits,
        reset_power_limit,
        set_power_limit,
    )

    if reset and watts is not None:
        raise click.UsageError("give WATTS or --reset, not both")
    if as_json and (reset or watts is not None):
        raise click.UsageError("--json shows the limits, and sets none")
    if reset or watts is not None:
        before_w = reset_power_limit(gpu) if watts is None else set_power_limit(watts, gpu)
        now = "its default" if watts is None else f"{watts:g} W"
        show(f"{name_of(gpu)}: the power limit is {now}; before, it was {before_w:g} W.")
        show(f"To set that again: opcost power-limit {before_w:g} --gpu {gpu}")
        return
    known = power_limits()
    if as_json:
        shown = {n: {"reason": x} if isinstance(x, str) else asdict(x) for n, x in known.items()}
        show(json.dumps(shown, indent=2))
        return
    for name, found in known.items():
        if isinstance(found, str):
            show(f"{name}: {found}")
            continue
        show(
            f"{name}: {found.present_w:g} W (default {found.default_w:g} W, allowed "
            f"{found.least_w:g} to {found.most_w:g} W)"
        )
        if left := pending(name.removeprefix("cuda:")):
            show(f"{name}: {left}")
