"""`opcost import`."""  # noqa: N999 a command may be called as a keyword is

from pathlib import Path

import click

from opcost.commands import LOOK_AT_IT

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("files", type=_PATH, nargs=-1, required=True)
@click.option("--output", "-o", type=_PATH, required=True, help="The database.")
@click.option("--source", required=True, help="Where the records were published: an address.")
@click.option("--target", help="Name of the rows' target; by default of layout and device.")
@click.option("--device-name", help="The device's model, if the files do not say it.")
def command(
    files: tuple[Path, ...], output: Path, source: str, target: str | None, device_name: str | None
) -> None:
    """Make a database of the records in FILES, which others have published.

    Their rows say that they are imported, and are never added up with measured ones. A record that
    does not determine an operator tuple is left out, counted, and named with its reason: then the
    exit code is 3.

    \b
    opcost import conv/*.csv --source https://github.com/sitar-lab/NeuSight -o neusight.parquet
    """
    from opcost.imports.importer import import_records

    done = import_records(files, output, source, target, device_name)
    click.echo(str(done))
    if done.skipped:
        raise SystemExit(LOOK_AT_IT)
