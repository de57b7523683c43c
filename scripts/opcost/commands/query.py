"""`opcost query`."""

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from opcost.results_folder import DATABASE


class _Value(click.ParamType):
    """Text that is completed with the values of a column in the database at hand."""

    name = "text"

    def __init__(self, column: str) -> None:
        self.column = column

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from opcost.errors import OpcostError
        from opcost.queries.query import values_of
        from opcost.tuples.operator_tuple import short_name

        # While an option has no value yet, click has not taken the arguments for what they are.
        databases = ctx.params.get("databases") or ctx.args or [DATABASE]
        try:
            values = values_of([Path(each) for each in databases], self.column)
        except OpcostError:
            return []
        if self.column == "operator":
            values = sorted({short_name(value) for value in values})
        return [CompletionItem(value) for value in values if value.startswith(incomplete)]


@click.command()
@click.argument("databases", type=click.Path(path_type=Path), nargs=-1)
@click.option(
    "--operator",
    "operators",
    type=_Value("operator"),
    multiple=True,
    help="conv2d, aten.conv2d.default, or with wildcards: '*norm*'.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    help="Of any tensor argument: 1x64x56x56, * for any size of a dimension.",
)
@click.option("--dtype", "dtypes", multiple=True, help="Of any tensor argument: float32.")
@click.option("--target", "targets", type=_Value("target"), multiple=True)
@click.option("--status", "statuses", multiple=True, help="ok, error, timeout, ...")
@click.option("--flag", "flags", multiple=True, help="Rows that have it: disturbed, ...")
@click.option("--unflagged", is_flag=True, help="Rows without any flag.")
@click.option("--tuple", "tuple_ids", multiple=True, help="The tuple id, or how it begins.")
@click.option("--text", help="A part of the description.")
@click.option("--sort", help="A column, largest first: time, energy, power, flops, ...")
@click.option("--ascending", is_flag=True, help="Smallest first.")
@click.option("--limit", type=click.IntRange(min=1), help="How many rows at most.")
@click.option("--columns", help="time,flops,device_name: any columns of the database.")
@click.option("--json", "form", flag_value="json", help="A line of JSON for each row.")
@click.option("--csv", "form", flag_value="csv", help="CSV; lists as JSON text.")
@click.option("--parquet", type=click.Path(path_type=Path), help="Write the rows to this file.")
def command(
    databases: tuple[Path, ...],
    sort: str | None,
    ascending: bool,
    limit: int | None,
    columns: str | None,
    form: str | None,
    parquet: Path | None,
    **wanted: Any,
) -> None:
    """Rows of DATABASES (results/database.parquet where none is named) that fit all options.

    An option that is given several times fits if one of its values does. Exits with 3 if no row
    fits.

    \b
    opcost query --sort time --limit 10
    opcost query --operator conv2d --shape '1x64x*x*' --unflagged
    opcost query --operator '*norm*' --columns description,time,flops --csv > norms.csv
    opcost query merged.parquet --target h200 --text 'stride=[2,2]' --sort energy --json
    """
    from opcost.commands import LOOK_AT_IT
    from opcost.queries import listing
    from opcost.queries.query import DEFAULT_COLUMNS, Filter, column_named, query
    from opcost.rows import records

    paths = databases or (DATABASE,)
    chosen = (
        [column_named(name.strip()) for name in columns.split(",")]
        if columns
        else [*DEFAULT_COLUMNS]
    )
    if columns is None and len(paths) > 1:
        chosen.append("database")
    rows = query(
        paths,
        Filter(**wanted),
        columns=listing.with_limits(chosen) if form is None and parquet is None else chosen,
        sort=sort,
        ascending=ascending,
        limit=limit,
    )
    if parquet is not None:
        records.write_table(parquet, rows)
    if form == "json":
        for line in listing.json_lines(rows):
            click.echo(line)
    elif form == "csv":
        click.echo(listing.csv_text(rows), nl=False)
    elif parquet is None and len(rows):
        click.echo("\n".join(listing.aligned(rows, chosen) if columns else listing.overview(rows)))
    if not len(rows):
        click.echo("no row fits", err=True)
        raise SystemExit(LOOK_AT_IT)
