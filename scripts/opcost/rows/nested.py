"""Rows for formats without lists, maps and timestamps."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def as_json(value: Any) -> str:
    """A plain value as JSON that can be printed."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


def plain_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Rows of plain values; maps become dictionaries, and timestamps ISO 8601 text."""
    columns = [_plain_values(column) for column in batch.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))


def flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, with lists and maps as JSON text and timestamps in ISO 8601."""
    return pa.RecordBatch.from_arrays(
        [_flat_column(column) for column in batch.columns], names=batch.schema.names
    )


def float_texts(numbers: pa.Array) -> pa.Array:
    """Floats as the shortest text that parses to the same float; whole numbers with `.0`."""
    texts = numbers.cast(pa.string())
    if not pc.any(pc.equal(pc.floor(numbers), numbers)).as_py():
        return texts
    whole = pc.match_substring_regex(texts, r"^-?\d+$")
    return pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)


def _flat_column(column: pa.Array) -> pa.Array:
    if pa.types.is_map(column.type):
        pairs = pc.binary_join_element_wise(
            _json_texts(column.keys), _json_texts(column.items), ": "
        )
        return _joined(column, pairs, "{", "}")
    if pa.types.is_list(column.type):
        return _joined(column, _json_texts(column.values), "[", "]")
    return _iso_texts(column) if pa.types.is_timestamp(column.type) else column


def _joined(lists: pa.Array, elements: pa.Array, opening: str, closing: str) -> pa.Array:
    """Each list as one text. `elements` are the texts of all values, before slicing `lists`."""
    of_each = pa.ListArray.from_arrays(lists.offsets, elements)
    texts = pc.binary_join_element_wise(opening, pc.binary_join(of_each, ", "), closing, "")
    return pc.if_else(lists.is_valid(), texts, None)


def _json_texts(values: pa.Array) -> pa.Array:
    """Each value as JSON."""
    if pa.types.is_string(values.type):  # flags and reasons have few distinct values
        encoded = values.dictionary_encode()
        texts = pa.array(map(as_json, encoded.dictionary.to_pylist()), pa.string())
        return pc.fill_null(texts.take(encoded.indices), "null")
    if not pa.types.is_floating(values.type):
        return pc.fill_null(values.cast(pa.string()), "null")
    texts = float_texts(values)
    if not pc.all(pc.is_finite(values)).as_py():  # in the form of Python's json
        texts = pc.replace_substring(texts, "nan", "NaN")
        texts = pc.replace_substring(texts, "inf", "Infinity")
    return pc.fill_null(texts, "null")


def _iso_texts(times: pa.Array) -> pa.Array:
    """Times in UTC in the form of `datetime.isoformat`."""
    texts = times.cast(pa.timestamp(times.type.unit)).cast(pa.string())
    texts = pc.replace_substring_regex(texts, r"^(\S+) (\S+?)(\.0+)?$", r"\1T\2")
    return pc.binary_join_element_wise(texts, "+00:00", "")


def _plain_values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return _iso_texts(column).to_pylist()
    values = column.to_pylist()
    if pa.types.is_map(column.type):
        return [None if value is None else dict(value) for value in values]
    return values
