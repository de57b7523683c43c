"""Convert the archives and the reference data to the present schema version.

`python -m tests.golden.convert [FORMER=NAME ...]` with the columns that were renamed.
"""

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from opcost.databases.database import REFERENCE
from opcost.rows import records, schemas

from tests.golden.__main__ import FOLDER, STUDIES

RECORDS = {
    schema.metadata[b"opcost.record"]: schema
    for schema in vars(schemas).values()
    if isinstance(schema, pa.Schema)
}
PACK = (
    'tar --sort=name --mtime=2026-11-28 --owner=0 --group=0 --numeric-owner -cf - * | xz -9e > "$0"'
)


def convert(path: Path, renamed: Mapping[str, str]) -> None:
    """Give a file the present columns, and the present number of the version."""
    file = pq.ParquetFile(path)
    known = file.schema_arrow.metadata
    schema = RECORDS[known[b"opcost.record"]]
    further = {
        key.decode(): value.decode()
        for key, value in (file.metadata.metadata or {}).items()
        if key not in (*schema.metadata, b"ARROW:schema")
    }
    rows = [
        {renamed.get(name, name): value for name, value in row.items()}
        for row in file.read().to_pylist()
    ]
    for row in rows:
        if "schema_version" in row:
            row["schema_version"] = schemas.SCHEMA_VERSION
    if len(rows) == 1 and not further:
        present = [{name: row.get(name) for name in schema.names} for row in rows]
        records.write(path, schema, present)
    else:
        batches = pa.Table.from_pylist(rows, schema=schema).to_batches()
        records.write_batches(path, schema, batches, lambda: further)


def main() -> None:
    """Convert all files."""
    renamed = dict(each.split("=") for each in sys.argv[1:])
    for study in STUDIES:
        archive = FOLDER / f"{study}.tar.xz"
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(archive) as files:
                files.extractall(folder, filter="data")
            for path in Path(folder).rglob("*.parquet"):
                convert(path, renamed)
            subprocess.run(["sh", "-c", PACK, archive], cwd=folder, check=True)
    for path in REFERENCE.rglob("*.parquet"):
        convert(path, renamed)


if __name__ == "__main__":
    main()
