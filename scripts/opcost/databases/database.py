"""Reading a database: every operator measurement in one file, of a study or of several."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from opcost.errors import OpcostError
from opcost.results_folder import DATABASE
from opcost.rows import records, schemas

REFERENCE = Path(__file__).parents[1] / "reference"
"""Databases that come with opcost: in a clone a link to data/reference/, whose README says more."""

_REMEDY = "name a database that opcost made; {path} is another file"


def read_database(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a database, merged or not, or some of their columns.

    Only of merged ones there are `conditions_id` and `sources`. Raises OpcostError for a file that
    is no database, or is of a newer opcost.
    """
    schema = _schema_of(path)
    chosen = None if columns is None else [name for name in columns if name in schema.names]
    return records.read_all([path], schema, chosen, _REMEDY)


def stream_database(path: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a database, merged or not, and its rows in batches of some hundred.

    Raises OpcostError as `read_database` does, for damaged rows when they are come to.
    """
    schema = _schema_of(path)
    return schema, records.stream(path, schema, remedy=_REMEDY)


def _schema_of(path: Path) -> pa.Schema:
    if not path.is_file():
        raise OpcostError(
            f"there is no database {path}: name another, or run a study (snakemake --cores 1)"
        )
    merged = records.metadata(path).get("opcost.record") == "merged"
    return schemas.MERGED if merged else schemas.DATABASE


def default_databases() -> list[Path]:
    """The databases to answer from if none is named.

    That of the study in the current folder, if it was run, then those that come with opcost.
    """
    return [path for path in [DATABASE] if path.is_file()] + sorted(REFERENCE.glob("*.parquet"))
