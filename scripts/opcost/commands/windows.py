"""`opcost windows`."""

import json
from math import isfinite
from pathlib import Path

import click

from opcost.terminal import show, tell

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("recording", type=_PATH)
@click.option("--each", is_flag=True, help="A line for each window instead of each name.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(recording: Path, each: bool, as_json: bool) -> None:
    """List the windows of a RECORDING, the .parquet file of `opcost measure --output`.

    A line has the windows of one name: their number, their total time and energy of each device
    with its interval, and the last values that the program logged in them.

    \b
    opcost windows run.parquet
    opcost windows --each run.parquet
    """
    from opcost.power.export import segments, unfinished
    from opcost.power.recorded_windows import not_ended, rows_by_name, window_rows
    from opcost.power.window_table import window_lines

    known = segments(recording)
    rows = window_rows(known) if each else rows_by_name(known)
    if left := unfinished(recording):
        tell(f"opcost: not listed: {left}")
    if begun := not_ended(known):
        tell(f"opcost: {begun}")
    if as_json:
        for row in rows:  # JSON has no NaN and no infinity
            numbers = row["metrics"].items()
            row["metrics"] = {name: x if isfinite(x) else None for name, x in numbers}
        show(json.dumps(rows, indent=2))
    else:
        show("\n".join(window_lines(rows) or ["There is no window in it."]))
