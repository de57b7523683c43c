"""What do `opcost query` and a CSV export cost beside what pyarrow alone needs?

Makes a database of synthetic rows, some hundred different ones again and again, then reads, queries
and exports it. Each step runs in a process of its own; the ratio is that of its processor seconds
to those of pyarrow in the same run: to read the same columns, or to read and write them as CSV,
lists as text. pyarrow checks no value there, quotes no text and leaves formulas as they are.

    PYTHONPATH=scripts python -m tests.benchmarks.export [--rows 100000]
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from opcost.queries import listing
from opcost.queries.export import export
from opcost.queries.query import DEFAULT_COLUMNS, Filter, query
from opcost.queries.row_filter import FILTERED
from opcost.rows import records, schemas

from tests.synthetic_study import make_study

READ = list(dict.fromkeys([*FILTERED, *DEFAULT_COLUMNS]))
BATCH_ROWS = 500


def make_database(folder: Path, rows: int) -> Path:
    """A database of that many rows."""
    study = make_study(folder / "study", operators=600, models=("first", "second"))
    seed = records.read(study / "database.parquet", schemas.DATABASE)
    batches = seed.slice(0, BATCH_ROWS).combine_chunks().to_batches() * (rows // BATCH_ROWS)
    records.write_batches(folder / "database.parquet", schemas.DATABASE, batches)
    return folder / "database.parquet"


def processor_seconds(work: Callable[[], object]) -> float:
    """Of a process that does the work and nothing else."""
    before = os.times()
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0
    after = os.times()
    return (
        after.children_user - before.children_user + after.children_system - before.children_system
    )


def as_text(column: pa.ChunkedArray) -> pa.Array:
    """A column as pyarrow can write it: lists and maps joined."""
    if not pa.types.is_nested(column.type):
        return column
    return pa.chunked_array([joined(chunk) for chunk in column.chunks], pa.string())


def joined(lists: pa.Array) -> pa.Array:
    """Lists as text, maps by their keys."""
    values = lists.keys if pa.types.is_map(lists.type) else lists.values
    texts = pa.ListArray.from_arrays(lists.offsets, values.cast(pa.string()).fill_null("null"))
    return pc.binary_join(texts, ", ")


def pyarrow_csv(table: pa.Table, output: Path | BinaryIO) -> None:
    """The table as CSV, by pyarrow."""
    columns = [as_text(column) for column in table.columns]
    pyarrow.csv.write_csv(pa.table(columns, names=table.column_names), output)


def pyarrow_export(database: Path, output: Path) -> None:
    """The whole database as CSV, by pyarrow, piece by piece."""
    with pq.ParquetFile(database) as file, output.open("wb") as sink:
        for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
            pyarrow_csv(pa.Table.from_batches([batch]), sink)


def compare(name: str, ours: Callable[[], object], theirs: Callable[[], object]) -> None:
    """Print the seconds of both, and their ratio."""
    mine, reference = processor_seconds(ours), processor_seconds(theirs)
    print(f"{name:44}{mine:>10.2f}{reference:>10.2f}{mine / reference:>8.2f}", flush=True)


def query_csv(database: Path) -> None:
    """What `opcost query --csv` prints."""
    listing.csv_text(query([database]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = make_database(folder, arguments.rows)
        size = path.stat().st_size / 2**20
        print(f"{arguments.rows} rows, {size:.0f} MiB{'opcost':>20}{'pyarrow':>10}{'ratio':>8}")
        steps = {
            "query against reading its columns": lambda: query([path]),
            "query of conv2d, the same": lambda: query([path], Filter(operators=["conv2d"])),
            "query --csv against reading and writing": lambda: query_csv(path),
            "query's table against reading and writing": lambda: listing.overview(
                query([path], columns=[*DEFAULT_COLUMNS, *listing.TELL_APART])
            ),
        }
        for name, ours in steps.items():
            writes = "writing" in name

            def theirs(writes: bool = writes) -> None:
                table = pq.read_table(path, columns=READ)
                if writes:
                    pyarrow_csv(table.select(DEFAULT_COLUMNS), folder / "theirs.csv")

            compare(name, ours, theirs)
        compare(
            "export to CSV against reading and writing",
            lambda: export(path, folder / "ours.csv"),
            lambda: pyarrow_export(path, folder / "theirs.csv"),
        )
