"""`opcost watch`."""

import signal
from typing import TYPE_CHECKING

import click

from opcost.commands.parameters import DEVICES, Duration
from opcost.terminal import show

if TYPE_CHECKING:
    from opcost.power.windows import Window


@click.command()
@DEVICES
@click.option(
    "--every",
    type=Duration(0.1, 3600),
    default="1s",
    show_default=True,
    help="Time between lines, such as 5 or 10min.",
)
def command(devices: tuple[str, ...], every: float) -> None:
    """Show the power of each device, and its energy since the start, until Ctrl-C.

    Power is the mean since the previous line. The table of opcost measure follows at the end.

    \b
    opcost watch
    opcost watch --device cuda:0 --every 5
    """
    from opcost.errors import OpcostError
    from opcost.power.attribution import NOBODY
    from opcost.power.command import KILLED, watch
    from opcost.power.monitor import Monitor
    from opcost.power.text import as_tick

    with Monitor(devices or None, user=NOBODY) as monitor:
        for name, reason in monitor.missing.items():
            show(f"{name}: no energy: {reason}", err=True)
        if not monitor.devices:
            others = "".join(f"; {why}" for why in monitor.unseen)
            raise OpcostError(f"there is no power sensor to watch{others}")
        before_s = monitor.edge()

        def show_power(window: "Window") -> None:
            nonlocal before_s
            now_s = monitor.edge()
            latest = monitor.energy(before_s, now_s)
            show(as_tick(latest, window.so_far(now_s)))
            before_s = now_s

        window, code = watch(None, None, monitor, show_power, every)
        show(f"\n{window}")
    if code != KILLED + signal.SIGINT:  # Ctrl-C
        raise SystemExit(code)
