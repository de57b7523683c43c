"""Merged rows in a folder, for many rows of many devices.

    _common_metadata                         schema, sources, and ratios of models
    rows/DEVICE/TORCH/CONDITIONS_ID.parquet  the rows of one conditions_id
    raw/DEVICE/TORCH/CONDITIONS_ID.parquet   their blocks and power samples, in the same order

Files are sealed and never change: a later merge links them, or writes others. Rows and seals are
checked when they are merged, and not at each read.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from opcost.errors import OpcostError
from opcost.files import opened
from opcost.rows import records, schemas
from opcost.rows.checks import check
from opcost.rows.seal import BrokenSeal, check_seal

REMEDY = "merge its databases again"
METADATA = "_common_metadata"
"""The name under which readers of Parquet folders expect the schema and metadata."""

UNKNOWN = "unknown"
"""Stands for a conditions_id, a device or a version that is not known."""

_ROWS, _RAW = "rows", "raw"
_KEYS = ("conditions_id", "tuple_id")


def is_collection(path: Path) -> bool:
    """Whether a path is a folder of merged rows."""
    return (path / METADATA).is_file()


def metadata_of(path: Path) -> dict[str, str]:
    """The key-value metadata of a database, a file or a folder; empty if it cannot be read."""
    return records.metadata(path / METADATA if path.is_dir() else path)


def parts(folder: Path, conditions_id: str | None = None) -> list[Path]:
    """The files of rows, without raw values, or that of one conditions_id."""
    found = sorted((folder / _ROWS).rglob("*.parquet"))
    return [part for part in found if conditions_id in (None, part.stem)]


def check_version(folder: Path) -> None:
    """Raise OpcostError for a folder of another version."""
    records.check_metadata(folder / METADATA, schemas.MERGED, REMEDY)


def read_part(part: Path, names: Sequence[str]) -> pa.Table:
    """Columns of one file. Raises OpcostError if it cannot be read."""
    found: dict[str, pa.ChunkedArray] = {}
    for path in (part, raw_of(part)):
        held = [name for name in names if (name in schemas.RAW_BLOCKS) == (path != part)]
        if held:
            try:
                table = pq.read_table(path, columns=held, partitioning=None)
            except records.UNREADABLE as error:
                raise OpcostError(f"{path} cannot be read ({error}): {REMEDY}") from error
            found |= dict(zip(held, table.columns, strict=True))
    return pa.table({name: found[name] for name in names})


def raw_of(part: Path) -> Path:
    """The file with the raw values of the rows of a file."""
    device, torch, name = part.parts[-3:]
    return part.parents[3] / _RAW / device / torch / name


def checked(part: Path) -> pa.Table:
    """The rows of a file with their raw values, checked. Raises OpcostError if it has changed since
    it was written.
    """
    _check_seals(part)
    table = read_part(part, schemas.MERGED.names)
    for batch in table.to_batches():
        check(batch, "merged", part, REMEDY)
    return table


def link(part: Path, folder: Path) -> None:
    """Give a file with its raw values to another collection. Raises like `checked`."""
    _check_seals(part)
    for path in (part, raw_of(part)):
        target = folder.joinpath(*path.parts[-4:])
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except OSError:  # another file system
            shutil.copy2(path, target)


def _check_seals(part: Path) -> None:
    for path in (part, raw_of(part)):
        try:
            with opened(path) as file:
                if not check_seal(file):
                    raise BrokenSeal("it is cut, or another program wrote it")
        except BrokenSeal as error:
            raise OpcostError(f"{path}: {error}: {REMEDY}") from error


def write_part(folder: Path, conditions_id: str | None, rows: pa.Table) -> None:
    """Add the rows of one conditions_id."""
    of_rows = folder / _ROWS
    for name in ("device_name", "torch_version"):
        known = rows[name][0].as_py() if conditions_id else None
        of_rows /= re.sub(r"[^A-Za-z0-9_.+-]+", "_", known or UNKNOWN).strip("._") or UNKNOWN
    of_rows /= f"{conditions_id or UNKNOWN}.parquet"
    records.write_table(of_rows, rows.drop_columns(schemas.RAW_BLOCKS))
    records.write_table(raw_of(of_rows), rows.select([*_KEYS, *schemas.RAW_BLOCKS]))


def write_metadata(folder: Path, metadata: Mapping[str, str]) -> None:
    """Write the metadata, after all rows."""
    schema = schemas.MERGED.with_metadata({**schemas.MERGED.metadata, **metadata})
    pq.write_metadata(schema, folder / METADATA)
