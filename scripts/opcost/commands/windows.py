"""`opcost windows`."""

import json
from math import isfinite
from pathlib import Path

import click

_PATH = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("recording", type=_PATH)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(recording: Path, as_json: bool) -> None:
    """List the windows of a RECORDING, the .parquet file of `opcost measure --output`.

    A line has a window's time, the energy of each device with its interval, and the last value of
    what the program logged in it.

    \b
    opcost windows run.parquet
    """
    from opcost.power.export import segments
    from opcost.power.recorded_windows import window_lines, window_rows

    rows = window_rows(segments(recording))
    if as_json:
        for row in rows:  # JSON has no NaN and no infinity
            numbers = row["metrics"].items()
            row["metrics"] = {name: each if isfinite(each) else None for name, each in numbers}
        click.echo(json.dumps(rows, indent=2))
    else:
        click.echo("\n".join(window_lines(rows) or ["There is no window in it."]))
