"""Every operator measurement of a study in one file, each row checked on its way."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from opcost import records, schemas
from opcost.errors import OpcostError
from opcost.operator_tuple import id_of


def write_database(paths: Iterable[Path], output: Path) -> None:
    """Write the rows of all measurement files, in their order, into one, in bounded memory.

    Raises OpcostError, with the file to delete, for one that cannot be read, has no row, or has a
    row that is not of the tuple that it names; and for two rows of one tuple on one target.
    """
    records.write_batches(output, schemas.OPERATOR, _checked(paths))


def _checked(paths: Iterable[Path]) -> Iterator[pa.RecordBatch]:
    seen: dict[tuple[str, str], Path] = {}
    for path in paths:
        empty = True
        for batch in records.stream(path, schemas.OPERATOR):
            for key in _keys(batch, path):
                if key in seen:
                    raise OpcostError(
                        f"{path} and {seen[key]} both hold tuple {key[1]} on target {key[0]}: "
                        "delete both and run again"
                    )
                seen[key] = path
                empty = False
            yield batch
        if empty:
            raise OpcostError(f"{path} holds no row: delete it and run again")


def _keys(batch: pa.RecordBatch, path: Path) -> Iterator[tuple[str, str]]:
    """The target and tuple id of each row."""
    names = ("target", "tuple_id", "canonical_json")
    for target, tuple_id, canonical_json in zip(
        *(batch[name].to_pylist() for name in names), strict=True
    ):
        if canonical_json is None or tuple_id != id_of(canonical_json):
            raise OpcostError(
                f"{path} has a row of tuple {tuple_id} that describes another ({canonical_json}): "
                f"delete {path} and run again to make it anew"
            )
        yield target, tuple_id
