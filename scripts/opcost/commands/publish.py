"""`opcost publish`."""

from pathlib import Path

import click

from opcost.commands.parameters import Database
from opcost.publishing.about import LICENSES
from opcost.publishing.folder import publish
from opcost.results_folder import DATABASE
from opcost.terminal import show
from opcost.text import counted


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("databases", type=Database(), nargs=-1)
@click.option(
    "--author",
    "authors",
    multiple=True,
    required=True,
    metavar="FAMILY, GIVEN [ORCID]",
    help="An author, who will be cited; repeat it for each.",
)
@click.option("--title", default="", help="Default: what was measured on which devices.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="TEXT",
    help="A citation or URL of data by others; required for reference data and merged databases.",
)
@click.option(
    "--license", type=click.Choice([*LICENSES]), default=next(iter(LICENSES)), show_default=True
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="WORD",
    help="Publish exactly this name of this machine or its user, such as h100.",
)
def command(
    folder: Path,
    databases: tuple[Path, ...],
    authors: tuple[str, ...],
    title: str,
    sources: tuple[str, ...],
    license: str,
    allowed: tuple[str, ...],
) -> None:
    """Write DATABASES into a FOLDER to upload to Hugging Face or Zenodo as it is.

    It holds the rows and the sensors' properties without what identifies a machine, a user or a
    card, with a data card, Croissant metadata, citation, licence and checksums. If a name of this
    machine is left in a file, nothing is written. Default: results/database.parquet.

    \b
    opcost publish published --author "Lovelace, Ada 0000-0002-1825-0097"
    opcost publish published merged --author "Lovelace, Ada" --source "Babbage (2025), doi:10.1/x"
    """
    rows = publish(folder, databases or [DATABASE], authors, license, title, sources, allowed)
    show(f"{counted(rows, 'row')} in {folder}, checked for names of this machine, user and cards.")
