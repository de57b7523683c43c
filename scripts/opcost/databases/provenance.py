"""The source databases of the rows of a merged database."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from opcost.files import opened, parse_json
from opcost.rows import records, schemas
from opcost.values import OBJECTS, TEXT, check_values, list_of, whole_number

Sources = dict[str, dict[str, Any]]
"""Databases by id: the number of `rows` of each, and the `names` under which it was merged."""

_KEY = "opcost.sources"
_RULES = {"names": list_of(TEXT), "rows": whole_number(0)}
_REMEDY = (
    "merge results/database.parquet of studies, or outputs of `opcost merge`; create {path} "
    "again where it was measured"
)


def sources_of(path: Path) -> Sources:
    """The database itself, or the sources of a merged database.

    A database's id is the first 16 hexadecimal digits of the SHA-256 of its file. Raises
    OpcostError for a file that does not exist; reading its rows detects other files.
    """
    metadata = records.metadata(path)
    if _KEY in metadata:
        return _checked(metadata[_KEY], path)
    with opened(path) as file:
        source = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return {source: {"names": [str(path)], "rows": records.number_of_rows(path)}}


def _checked(text: str, path: Path) -> Sources:
    source, remedy = f"{path}: its list of sources", "merge its databases again"
    sources = parse_json(text, source, remedy)
    check_values({"sources": sources}, {"sources": OBJECTS}, source, remedy)
    for merged in sources.values():
        check_values(merged, _RULES, source, remedy)
    return sources


def united(documents: Iterable[Sources]) -> Sources:
    """All databases, each with all names under which it was merged."""
    result: Sources = {}
    for document in documents:
        for source, entry in document.items():
            names = {*entry["names"], *result.get(source, entry)["names"]}
            result[source] = {"names": sorted(names), "rows": entry["rows"]}
    return result


def stating(schema: pa.Schema, sources: Sources) -> pa.Schema:
    """The schema with these sources as metadata."""
    return schema.with_metadata(
        {**schema.metadata, _KEY.encode(): json.dumps(sources, sort_keys=True).encode()}
    )


def rows_of(path: Path, sources: Sources) -> Iterator[tuple[pa.RecordBatch, list[frozenset[str]]]]:
    """The measured columns of a database, merged or not, in batches, and each row's sources.

    Raises OpcostError for a file that is not a database or was written by a newer opcost.
    """
    if records.metadata(path).get("opcost.record") != "merged":
        origin = frozenset(sources)
        for batch in records.stream(path, schemas.DATABASE, remedy=_REMEDY):
            yield batch, [origin] * len(batch)
        return
    known: dict[tuple[str, ...], frozenset[str]] = {}  # share equal sets to save memory
    for batch in records.stream(path, schemas.MERGED, remedy=_REMEDY):
        rows = map(tuple, batch["sources"].to_pylist())
        yield (
            batch.select(schemas.DATABASE.names),
            [known.setdefault(row, frozenset(row)) for row in rows],
        )
