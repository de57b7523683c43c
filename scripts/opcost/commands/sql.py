"""`opcost sql`."""

from pathlib import Path

import click

from opcost.commands.parameters import Database
from opcost.databases.database import own_database
from opcost.files import check_output
from opcost.queries import listing
from opcost.queries.connection import answer, plain
from opcost.rows import records
from opcost.terminal import show


@click.command()
@click.argument("statement")
@click.option(
    "-d",
    "--database",
    "databases",
    type=Database(),
    multiple=True,
    help="A database, merged or not, or the reference data by name, such as h100. Default: "
    "results/database.parquet, or the reference data if there is none.",
)
@click.option("--json", "form", flag_value="json", help="Print a line of JSON per row.")
@click.option("--csv", "form", flag_value="csv", help="Print CSV, with lists as JSON text.")
@click.option("--parquet", type=click.Path(path_type=Path), help="Write the result to a file.")
def command(
    statement: str, databases: tuple[Path, ...], form: str | None, parquet: Path | None
) -> None:
    """Answer a SELECT of SQL, as DuckDB understands it, from databases.

    The rows are in table "operators", with the path of their database in column "database". Raw
    values, such as block_time_s, are there if the statement names them. With the database of a
    study come its other tables, each under the name of its file: answers, modules, shares and
    others. Columns: docs/reference/columns.md.

    \b
    opcost sql "SELECT operator, count(*), sum(time_s) AS time_s FROM operators GROUP BY ALL"
    opcost sql -d h100 -d h200 --csv "PIVOT operators ON target USING sum(time_s) GROUP BY operator"
    """
    paths = (*databases,) or (*own_database(),)
    if parquet is not None:
        check_output(parquet, paths)
    with answer(statement, paths) as found:
        if parquet is not None:
            records.write_table(parquet, found.to_arrow_table())
        elif form is None:
            show(str(found).rstrip())
        elif form == "csv":
            show(listing.csv_text(plain(found)).removesuffix("\n"))
        else:
            for line in listing.json_lines(plain(found)):
                show(line)
