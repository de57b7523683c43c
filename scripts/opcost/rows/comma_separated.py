"""Rows as CSV that is safe to open in a spreadsheet.

Spreadsheets evaluate text that begins with `=`, `+`, `-`, `@` or white space as a formula. Such
text, also after apostrophes, gets an apostrophe in front, which makes it inert; removing one
apostrophe restores it. Numbers are unchanged.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from opcost.rows.nested import flat, float_texts

_FORMULA = r"^('*[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}])"  # the last four: full-width
_TO_QUOTE = r'[",\r\n]'
_MAX_ROWS = 10_000  # whose text is in memory at a time
_QUOTE = '"'


def write_csv(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches of a schema as CSV; lists and maps become JSON, null becomes empty."""
    with path.open("wb") as file:
        file.writelines(csv_parts(schema.names, batches, end="\r\n"))


def csv_parts(
    names: Sequence[str], batches: Iterable[pa.RecordBatch], end: str = "\n"
) -> Iterator[bytes]:
    """The CSV of batches with columns `names`, header first, in parts."""
    yield f"{','.join(names)}{end}".encode()
    for batch in batches:
        for start in range(0, len(batch), _MAX_ROWS):
            yield _lines(batch.slice(start, _MAX_ROWS), end)


def _lines(batch: pa.RecordBatch, end: str) -> bytes:
    *columns, last = [_cells(column) for column in flat(batch).columns]
    last = pc.binary_join_element_wise(pc.fill_null(last, ""), end, "")
    lines = pc.binary_join_element_wise(
        *columns, last, ",", null_handling="replace", null_replacement=""
    )
    _, _, text = lines.buffers()  # line after line
    return text.to_pybytes()


def _cells(column: pa.Array) -> pa.Array:
    """The values of a column as CSV fields."""
    if pa.types.is_boolean(column.type):
        return pc.if_else(column, "True", "False")
    if pa.types.is_floating(column.type):
        return float_texts(column)
    if not pa.types.is_string(column.type):
        return column.cast(pa.string())
    inert = pc.replace_substring_regex(column, _FORMULA, r"'\1")
    to_quote = pc.match_substring_regex(inert, _TO_QUOTE)
    if not pc.any(to_quote).as_py():
        return inert
    doubled = pc.replace_substring(inert, _QUOTE, 2 * _QUOTE)
    return pc.if_else(to_quote, pc.binary_join_element_wise(_QUOTE, doubled, _QUOTE, ""), inert)
