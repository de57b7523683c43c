"""Rows and sensor files without what identifies a host, a user or a card.

Digests of ids and of files become pseudonyms: digests with a random salt, of each publication its
own, that nobody keeps. Rows of two cards stay apart, and who knows the id of one cannot find it.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from opcost.addresses import DIGEST
from opcost.rows import comparability
from opcost.rows.runs import ModelRatio

IDS = ("device_uuid_hash", "machine_id_hash")
"""Columns, and keys of sensor files, with digests of ids."""

_SPOKEN = ("tuple_id", "operator", "canonical_json", "parameters", "conditions_id")
"""Columns of text that are derived from what was measured, and not free."""

_REPLACED = {
    r"(?<![\da-z])(?:(?:GPU-|MIG-)+[\da-f-]{4,}|[\da-f]{8}(?:-?[\da-f]{4}){3}-?[\da-f]{12})"
    r"(?:/\d+)*(?![\da-z])": "<id>",  # UUIDs, of GPUs also their beginning
    r"(?<![\da-z])(?:[\da-f]{2}[:-]){5,}[\da-f]{2}(?![\da-z])": "<address>",  # MAC
    r"(?<![\d.])(?<!Linux-)(?:\d{1,3}\.){3}\d{1,3}(?!\.?\d)": "<address>",  # IPv4
    r"(?<![\w:])(?:(?:[\da-f]{1,4}:){7}|(?:[\da-f]{1,4}:)+:|::)(?:[\da-f]{1,4}:)*[\da-f]{1,4}"
    r"(?!\w)": "<address>",  # IPv6
}
_SLASHED = re.compile(
    r"""https?://[^\s"'`<>()|,;@~\\]++(?![@~\\])"""
    r"""|[^\s"'`=,;:()<>[\]{}|]*[/\\~][^\s"'`=,;:()<>[\]{}|]*"""
)
_NO_PATH = re.compile(
    r"https?:.*|/|~[\d.]+\w*|[\d.]+/[\d.]+|(?:\w[\w-]*/\w[\w-]*"
    r"|/(?:sys|proc|dev(?!/shm))(?:/[\w+-][\w.+-]*)+)[.!?]*"
)
"""URLs, ratios, alternatives (`J/s`, `and/or`), and files of the kernel."""


def is_text(kind: pa.DataType) -> bool:
    """Whether a column has texts, possibly in lists or maps."""
    return "string" in str(kind)


@lru_cache(10_000)
def cleaned(text: str) -> str:
    """The text with `<id>` and `<address>` in place of UUIDs and network addresses, and `<path>` in
    place of all from the first path on, as it may contain spaces; each string in JSON by itself.
    """
    if text[:1] in ("{", "["):
        with suppress(ValueError):
            before = json.loads(text)
            after = _mapped(before, cleaned)
            return text if after == before else json.dumps(after)
    for pattern, instead in _REPLACED.items():
        text = re.sub(pattern, instead, text, flags=re.IGNORECASE)
    paths = (each for each in _SLASHED.finditer(text) if not _NO_PATH.fullmatch(each[0]))
    return next((f"{text[: path.start()]}<path>" for path in paths), text)


class Cleaning:
    """The cleaning of one publication; the same id has the same pseudonym in all of its files."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(32)
        self.ids: set[str] = set()
        """Every digest that was replaced."""
        self._conditions: dict[str, str] = {}

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of a database, merged or not, with its texts cleaned."""
        for batch in batches:
            columns = {
                field.name: pa.array(
                    _mapped(batch[field.name].to_pylist(), self._change_of(field.name)), field.type
                )
                for field in batch.schema
                if is_text(field.type)
            }
            columns = {name: columns.get(name, batch[name]) for name in batch.schema.names}
            if "conditions_id" in columns:
                columns["conditions_id"] = self._conditions_of(batch["conditions_id"], columns)
            yield pa.RecordBatch.from_pydict(columns, schema=batch.schema)

    def ratios(self, ratios: Mapping[str, Sequence[ModelRatio]]) -> dict[str, list[ModelRatio]]:
        """The ratios of models of a database whose batches are cleaned."""
        return {
            self._conditions.get(name) or self._target(name): [
                replace(each, model=cleaned(each.model)) for each in found
            ]
            for name, found in ratios.items()
        }

    def sensor(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The content of a sensor file."""
        return {key: _mapped(value, self._change_of(key)) for key, value in document.items()}

    def _change_of(self, name: str) -> Callable[[str], str | None]:
        if name in _SPOKEN:
            return str
        if name == "workflow_commit":  # of a repository that others may not know
            return lambda _: None
        if name in ("target", "characterised_on_target"):
            return self._target
        return self._pseudonym if name in (*IDS, "sources") else cleaned

    def _pseudonym(self, digest: str) -> str:
        self.ids.add(digest)
        return hashlib.sha256(self._salt + digest.encode()).hexdigest()[: len(digest)]

    def _target(self, name: str) -> str:
        """The name; that of a target under former conditions ends with a digest of its device."""
        return re.sub(rf"(?<=-){DIGEST}$", lambda found: self._pseudonym(found[0]), name)

    def _conditions_of(self, before: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
        """The conditions_ids that follow from cleaned rows; the former ones contain digests."""
        of = {name: columns[name] for name in ("target", *comparability.COLUMNS)}
        rows = pa.RecordBatch.from_pydict(of).to_pylist()
        found = [*map(comparability.conditions_id, rows)]
        pairs = zip(before.to_pylist(), found, strict=True)
        self._conditions |= {old: new for old, new in pairs if old and new}
        return pa.array(found, pa.string())


def _mapped(value: Any, change: Callable[[str], str | None]) -> Any:
    """A value with every text in it, however deep, changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_mapped(key, change): _mapped(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_mapped(each, change) for each in value)
    return value
