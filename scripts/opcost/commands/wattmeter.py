"""`opcost wattmeter`."""

from pathlib import Path

import click

from opcost.terminal import show


@click.command()
@click.argument("source")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("wattmeter.json"),
    show_default=True,
    help="The file to write.",
)
def command(source: str, output: Path) -> None:
    """Find the interval and the delay of a wattmeter that prints watts, one number on each line.

    SOURCE is a command, or the path of a serial line or a named pipe. Keeps the processor busy by
    turns, for 150 intervals. With the environment variable OPCOST_WATTMETER=FILE, or =SOURCE with
    an unknown delay, the wattmeter is read beside the other sensors.

    \b
    opcost wattmeter /dev/ttyUSB0
    opcost wattmeter 'ssh meter watts' --output rack.json
    """
    from opcost.energy.load import ProcessorLoad
    from opcost.energy.meter import MeterUnavailable
    from opcost.energy.wattmeter import Wattmeter, characterise_wattmeter
    from opcost.errors import OpcostError
    from opcost.files import write_json

    try:
        document = characterise_wattmeter(Wattmeter(source), ProcessorLoad())
    except MeterUnavailable as error:
        raise OpcostError(str(error)) from error
    write_json(output, document)
    found = document["readings"][document["meter"]]
    for name in ("refresh_s", "averaging_s", "lag_s", "rise_s"):
        show(f"{name}: {'-' if found[name] is None else format(found[name], '.3g')}")
    for name, reason in document["reasons"].items():
        show(f"{name} is unknown: {reason}")
    show(f"To use it: OPCOST_WATTMETER={output} opcost measure -- COMMAND")
