"""Merged rows in a folder, for many rows of many devices.

    _common_metadata                               schema, sources, ratios of models, list of files
    rows/DEVICE/TORCH/CONDITIONS_ID-NUMBER.parquet  the rows of one conditions_id
    raw/DEVICE/TORCH/CONDITIONS_ID-NUMBER.parquet   their blocks and power samples, in this order

Files are sealed and never change: a merge adds others, and replaces the list in one step. Rows and
seals are checked when they are merged, and not at each read; the files' sizes are.
"""

import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from opcost.errors import OpcostError
from opcost.files import opened, parse_json, replacing
from opcost.rows import records, schemas
from opcost.rows.checks import check
from opcost.rows.seal import BrokenSeal, check_seal

REMEDY = "copy the folder again, or merge its databases again"
METADATA = "_common_metadata"
"""The name under which readers of Parquet folders expect the schema and metadata."""

UNKNOWN = "unknown"
"""Stands for a conditions_id, a device or a version that is not known."""

_FILES = "opcost.files"
_ROWS, _RAW = "rows", "raw"
_TUPLE = "tuple_id"
_LONGEST = 80


def is_collection(path: Path) -> bool:
    """Whether a path is a folder of merged rows."""
    return (path / METADATA).is_file()


def metadata_of(path: Path) -> dict[str, str]:
    """The key-value metadata of a database, a file or a folder; empty if it cannot be read."""
    return records.metadata(path / METADATA if path.is_dir() else path)


def parts(folder: Path, conditions_id: str | None = None) -> list[Path]:
    """The files of rows, without raw values, or that of one conditions_id.

    Raises OpcostError for a folder of another version, and if a file is missing or has another size
    than when it was written.
    """
    records.check_metadata(folder / METADATA, schemas.MERGED, REMEDY)
    listed = parse_json(metadata_of(folder).get(_FILES, ""), folder / METADATA, REMEDY)
    for name, size in listed.items():
        path = folder / name
        if not path.is_file():
            raise OpcostError(f"{path} is missing: {REMEDY}")
        if path.stat().st_size != size:
            raise OpcostError(f"{path} has {path.stat().st_size} bytes, not {size}: {REMEDY}")
    every = [folder / name for name in sorted(listed) if name.startswith(_ROWS)]
    return [part for part in every if conditions_id in (None, conditions_of(part))]


def conditions_of(part: Path) -> str:
    """The conditions_id of the rows of a file, or `UNKNOWN`."""
    return part.stem.partition("-")[0]


def read_part(part: Path, names: Sequence[str]) -> pa.Table:
    """Columns of one file. Raises OpcostError if it cannot be read, or other rows have its raw
    values.
    """
    raw = [name for name in names if name in schemas.RAW_BLOCKS]
    rows = _columns(part, {name for name in names if name not in raw} | {_TUPLE})
    if raw:
        values = _columns(raw_of(part), {*raw, _TUPLE})
        if not values[_TUPLE].equals(rows[_TUPLE]):
            raise OpcostError(f"{raw_of(part)} has raw values of other rows: {REMEDY}")
        rows |= values
    return pa.table({name: rows[name] for name in names})


def _columns(path: Path, names: Iterable[str]) -> dict[str, pa.ChunkedArray]:
    try:
        table = pq.read_table(path, columns=[*names], partitioning=None)
        return {name: table[name] for name in names}
    except (*records.UNREADABLE, KeyError) as error:
        raise OpcostError(f"{path} cannot be read ({error}): {REMEDY}") from error


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


def link(part: Path, folder: Path) -> Path:
    """Give a file with its raw values to another collection, too. Raises like `checked`."""
    _check_seals(part)
    return _placed(part, folder, _linked)


def move(part: Path, folder: Path) -> Path:
    """Give a file with its raw values to another collection on the same file system."""
    return _placed(part, folder, os.replace)


def _placed(part: Path, folder: Path, place: Callable[[Path, Path], object]) -> Path:
    for path in (raw_of(part), part):
        target = folder.joinpath(*path.parts[-4:])
        target.parent.mkdir(parents=True, exist_ok=True)
        place(path, target)
    return target


def _linked(path: Path, target: Path) -> None:
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


def write_part(folder: Path, conditions_id: str | None, rows: pa.Table) -> Path:
    """Add a file with the rows of one conditions_id, and return it."""
    part = folder / _ROWS
    for name in ("device_name", "torch_version"):
        known = rows[name][0].as_py() if conditions_id else None
        readable = re.sub(r"[^A-Za-z0-9_.+-]+", "_", known or UNKNOWN)[:_LONGEST]
        part /= readable.strip("._") or UNKNOWN
    part /= f"{conditions_id or UNKNOWN}-{uuid.uuid4().hex[:8]}.parquet"
    records.write_table(raw_of(part), rows.select(["conditions_id", _TUPLE, *schemas.RAW_BLOCKS]))
    records.write_table(part, rows.drop_columns(schemas.RAW_BLOCKS))
    return part


def finish(folder: Path, held: Iterable[Path], metadata: Mapping[str, str]) -> None:
    """Make these files, and no others, those of a folder, and delete the others."""
    files = {path for part in held for path in (part, raw_of(part))}
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(files)}
    metadata = {**schemas.MERGED.metadata, **metadata, _FILES: json.dumps(sizes)}
    with replacing(folder / METADATA) as temporary:
        pq.write_metadata(schemas.MERGED.with_metadata(metadata), temporary)
    for name in (_ROWS, _RAW):
        for path in (folder / name).rglob("*.parquet"):
            if path not in files:
                path.unlink()
