"""`opcost query`."""

import shlex
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from opcost.commands import INCOMPLETE
from opcost.commands.parameters import Database
from opcost.databases.database import own_database
from opcost.errors import OpcostError
from opcost.files import check_output
from opcost.queries import listing
from opcost.queries.query import (
    DEFAULT_COLUMNS,
    Filter,
    column_named,
    elsewhere,
    query,
    values_of,
)
from opcost.results_folder import DATABASE
from opcost.rows import records
from opcost.terminal import show
from opcost.text import with_meaning_of_noise
from opcost.tuples.operator_tuple import short_name

_LINES = 20


class _Value(click.ParamType):
    """Text with shell completion from the values of a column of the database."""

    name = "text"

    def __init__(self, column: str) -> None:
        self.column = column

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        # Until the option has a value, click leaves the arguments unparsed in ctx.args.
        named = ctx.params.get("named") or ()
        databases = [*(ctx.params.get("databases") or ctx.args), *named] or [DATABASE]
        try:
            values = values_of([Path(each) for each in databases], self.column)
        except OpcostError:
            return []
        if self.column == "operator":
            values = sorted({short_name(value) for value in values})
        return [CompletionItem(value) for value in values if value.startswith(incomplete)]


@click.command()
@click.argument("databases", type=Database(), nargs=-1)
@click.option(
    "-d",
    "--database",
    "named",
    type=Database(),
    multiple=True,
    help="A database, as the arguments are: a path, or the reference data by name, such as h100.",
)
@click.option(
    "--operator",
    "operators",
    type=_Value("operator"),
    multiple=True,
    help="Operator: conv2d, aten.conv2d.default, or with wildcards '*norm*'.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    help="Shape of any tensor argument: 1x64x56x56; * matches any size of a dimension.",
)
@click.option("--dtype", "dtypes", multiple=True, help="Dtype of any tensor argument: float32.")
@click.option("--target", "targets", type=_Value("target"), multiple=True, help="Target.")
@click.option("--status", "statuses", multiple=True, help="Status: ok, error, timeout, ...")
@click.option("--flag", "flags", multiple=True, help="Select rows with this flag: disturbed, ...")
@click.option("--unflagged", is_flag=True, help="Select rows without any flag.")
@click.option(
    "--tuple",
    "tuple_ids",
    multiple=True,
    help="Tuple id, the start of one, or a description: 'conv2d(1x3x8x8, 4x3x3x3)'.",
)
@click.option("--text", help="Part of the description.")
@click.option(
    "--sort",
    default="time",
    show_default=True,
    help="Sort by a column, largest first: time, energy, power, flops, ...",
)
@click.option("--ascending", is_flag=True, help="Sort smallest first.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Maximum number of rows. [default: 20 in a table, else all]",
)
@click.option("--columns", help="Columns to print: time,flops,device_name.")
@click.option("--json", "form", flag_value="json", help="Print a line of JSON per row.")
@click.option("--csv", "form", flag_value="csv", help="Print CSV, with lists as JSON text.")
@click.option("--parquet", type=click.Path(path_type=Path), help="Write the rows to a file.")
def command(
    databases: tuple[Path, ...],
    named: tuple[Path, ...],
    sort: str,
    ascending: bool,
    limit: int | None,
    columns: str | None,
    form: str | None,
    parquet: Path | None,
    **wanted: Any,
) -> None:
    """Select rows of DATABASES that match all options. Default: results/database.parquet, or the
    reference data if there is none.

    An option given several times matches if one of its values does. Exits with 3 if no row matches.

    \b
    opcost query -d h100 --sort energy --limit 10
    opcost query --operator conv2d --shape '1x64x*x*' --unflagged
    opcost query --operator '*norm*' --columns description,time,flops --csv > norms.csv
    opcost query merged --target h200 --text 'stride=[2,2]' --sort energy --json
    """
    paths = (*databases, *named) or (*own_database(),)
    for path in databases:
        if path.name == str(path) and path.suffix != ".parquet" and not path.exists():
            option = "--tuple" if "(" in path.name else "--operator"
            raise OpcostError(
                f"there is no database {path}. To select an operator, write {option} "
                f"{shlex.quote(path.name)}"
            )
    if parquet is not None:
        check_output(parquet, paths)
    chosen = (
        [column_named(name.strip()) for name in columns.split(",")]
        if columns
        else [*DEFAULT_COLUMNS]
    )
    if columns is None and len(paths) > 1:
        chosen.append("database")
    shown, order = [*chosen], column_named(sort)
    if form is None and parquet is None:
        shown = [*listing.with_limits(chosen), *listing.TELL_APART]
    asked = Filter(**wanted | {"tuple_ids": [_id_of(each) for each in wanted["tuple_ids"]]})
    rows = query(
        paths,
        asked,
        columns=[*shown, order],
        sort=order,
        ascending=ascending,
    )
    if len(rows) and rows[order].null_count == len(rows):
        show(f"no row has {order}, so rows are in the order of the database", err=True)
    rows = rows.select(list(dict.fromkeys(shown)))
    found, in_a_table = len(rows), form is None and parquet is None
    rows = rows[: limit or (_LINES if in_a_table else found)]
    if parquet is not None:
        records.write_table(parquet, rows)
    if form == "json":
        for line in listing.json_lines(rows):
            show(line)
    elif form == "csv":
        show(listing.csv_text(rows).removesuffix("\n"))
    elif parquet is None and len(rows):
        lines = listing.aligned(rows, chosen) if columns else listing.overview(rows)
        show(with_meaning_of_noise("\n".join(lines)))
        if len(rows) < found:
            show(f"{len(rows)} of {found} rows; --limit shows more", err=True)
        for line in listing.notes(rows, chosen):
            show(line, err=True)
    if not found:
        show("no row matches", err=True)
        if others := elsewhere(paths, asked):
            options = " ".join(f"--target {name}" for name in others)
            show(f"under other conditions, rows match: {options}", err=True)
        raise SystemExit(INCOMPLETE)


def _id_of(tuple_id: str) -> str:
    if "(" not in tuple_id:
        return tuple_id
    from opcost.tuples.parsing import parse  # it imports torch

    return parse(tuple_id).tuple_id
