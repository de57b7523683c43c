"""`opcost merge`."""

from pathlib import Path

import click

from opcost.commands.parameters import Database
from opcost.databases.merging import merge
from opcost.terminal import show


@click.command()
@click.argument("databases", type=Database(), nargs=-1, required=True)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    required=True,
    help="A file, if it ends in .parquet, or a folder, to which later merges can add.",
)
def command(databases: tuple[Path, ...], output: Path) -> None:
    """Merge DATABASES of several machines or days into one.

    Rows are selected, never averaged; rows of different conditions stay separate.

    \b
    opcost merge lab_a/database.parquet lab_b/database.parquet --output merged
    opcost merge merged lab_c/database.parquet --output merged
    """
    show(str(merge(databases, output)))
