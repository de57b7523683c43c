"""`opcost chart`."""

from pathlib import Path

import click

from opcost.terminal import show

_PATH = click.Path(path_type=Path, dir_okay=False)
_RECORDING = click.Path(path_type=Path)


@click.command()
@click.argument("recording", type=_RECORDING)
@click.option("--output", "-o", type=_PATH, help="The page. Default: RECORDING with .html.")
def command(recording: Path, output: Path | None) -> None:
    """Draw power over time of a RECORDING, the .parquet file of `opcost measure --output`.

    Windows and what the program logged are marked. The page opens without a network.

    \b
    opcost chart run.parquet
    """
    from opcost.files import check_output
    from opcost.report.recording_chart import write_chart

    page = output or recording.with_suffix(".html")
    check_output(page, [recording])
    write_chart(recording, page)
    show(str(page))
