"""`opcost import`."""  # noqa: N999 the command's name is a keyword

from pathlib import Path

import click

from opcost.commands import INCOMPLETE
from opcost.imports.importer import import_records
from opcost.terminal import show

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("files", type=_PATH, nargs=-1, required=True)
@click.option("--output", "-o", type=_PATH, required=True, help="The database to write.")
@click.option("--source", required=True, help="URL of the published records.")
@click.option("--target", help="Target of the rows; default: composed of layout and device.")
@click.option("--device-name", help="Product name of the device, if the files do not state it.")
def command(
    files: tuple[Path, ...], output: Path, source: str, target: str | None, device_name: str | None
) -> None:
    """Convert published measurements in FILES to a database.

    The rows are flagged as imported and never added up with measured rows. Records that do not
    determine an operator tuple are skipped and listed with the reason; the exit code is then 3.

    \b
    opcost import conv/*.csv --source https://github.com/sitar-lab/NeuSight -o neusight.parquet
    """
    done = import_records(files, output, source, target, device_name)
    show(str(done))
    if done.skipped:
        raise SystemExit(INCOMPLETE)
