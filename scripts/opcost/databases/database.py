"""Reading databases of operator measurements."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from opcost.errors import OpcostError
from opcost.results_folder import DATABASE
from opcost.rows import records, schemas

REFERENCE = Path(__file__).parents[1] / "reference"
"""Databases that come with opcost; in a clone, a link to data/reference/ (see its README)."""

_REMEDY = "name a database that opcost made; {path} is another file"


def read_database(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a database, merged or not, or some of their columns.

    Only merged databases have `conditions_id` and `sources`. Raises OpcostError for a file that is
    not a database or was written by a newer opcost.
    """
    schema = _schema_of(path)
    chosen = None if columns is None else [name for name in columns if name in schema.names]
    return records.read_all([path], schema, chosen, _REMEDY)


def stream_database(path: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a database, merged or not, and its rows in batches of a few hundred.

    Raises OpcostError like `read_database`; for damaged rows, when it reaches them.
    """
    schema = _schema_of(path)
    return schema, records.stream(path, schema, remedy=_REMEDY)


def _schema_of(path: Path) -> pa.Schema:
    if path.is_dir():
        held = ", ".join(each.name for each in sorted(path.glob("*.parquet"))[:6])
        raise OpcostError(
            f"{path} is a folder: name a database in it{f', one of {held}' if held else ''}"
        )
    if not path.is_file():
        raise OpcostError(
            f"there is no database {path}: run a study (snakemake --cores 1), or name another, "
            f"such as the reference data in {REFERENCE}"
        )
    merged = records.metadata(path).get("opcost.record") == "merged"
    return schemas.MERGED if merged else schemas.DATABASE


def default_databases() -> list[Path]:
    """The databases to use by default: that of the study in the current folder, if there is one,
    then those that come with opcost.
    """
    return [path for path in [DATABASE] if path.is_file()] + sorted(REFERENCE.glob("*.parquet"))
