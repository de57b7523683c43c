"""`opcost windows`."""

import json
from math import isfinite
from pathlib import Path

import click

from opcost.terminal import show


@click.command()
@click.argument("recordings", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--each", is_flag=True, help="A line for each window instead of each name.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(recordings: tuple[Path, ...], each: bool, as_json: bool) -> None:
    """List the windows of RECORDINGS, the .parquet files of `opcost measure --output`.

    A line has the windows of one name: their number, their total time and energy of each device
    with its interval, and the last values that the program logged in them. What a killed
    measurement left becomes its file first.

    \b
    opcost windows run.parquet
    opcost windows --each run.parquet
    """
    from opcost.power.recording import read_windows
    from opcost.power.text import machine_document, rows_by_name, window_lines

    rows = [{"recording": str(path), **row} for path in recordings for row in read_windows(path)]
    rows = rows if each else rows_by_name(rows)
    if as_json:
        for row in rows:  # JSON has no NaN and no infinity
            numbers = row["metrics"].items()
            row["metrics"] = {name: x if isfinite(x) else None for name, x in numbers}
            row |= {"machine": machine_document(row["machine"])} if each else {}
            row["devices"] = {name: used.columns for name, used in row["devices"].items()}
        show(json.dumps(rows, indent=2))
    else:
        show("\n".join(window_lines(rows)))
