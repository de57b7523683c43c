"""`opcost export`."""

from pathlib import Path

import click

from opcost.terminal import show


@click.command()
@click.argument("database", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
def command(database: Path, output: Path) -> None:
    """Write DATABASE as CSV, SQLite or DuckDB, by the suffix of OUTPUT.

    The suffix is .csv, .sqlite, .db (SQLite) or .duckdb. Table "operators" has the rows, table
    "column_descriptions" the meanings of the columns. CSV and SQLite have no lists: raw values and
    flags are JSON text. DuckDB is not installed with opcost: python -m pip install duckdb.

    \b
    opcost export results/database.parquet operators.csv
    opcost export results/database.parquet operators.sqlite
    sqlite3 operators.sqlite "SELECT description, time_s FROM operators
                              WHERE status = 'ok' ORDER BY time_s DESC LIMIT 10"

    \b
    opcost export results/database.parquet operators.duckdb
    duckdb operators.duckdb "SELECT operator, count(*) AS tuples, median(flops / time_s) AS speed
                             FROM operators WHERE status = 'ok' GROUP BY ALL ORDER BY tuples DESC"
    duckdb operators.duckdb "SELECT unnest(flags) AS flag, count(*) FROM operators GROUP BY ALL"
    """
    from opcost.queries.export import export

    show(f"{export(database, output)} rows in {output}")
