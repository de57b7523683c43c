"""Filter rows by operator and by measurement.

Shapes and dtypes are those of the parsed tuple (`operator_tuple`), never of its description.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from opcost.errors import OpcostError, closest
from opcost.rows.checks import STATUSES
from opcost.rows.flags import FLAGS
from opcost.tuples.operator_tuple import ELEMENT_BYTES, OperatorTuple, TensorSpec, short_name

FILTERED = (
    *("tuple_id", "operator", "canonical_json", "description"),
    *("target", "status", "flags", "database"),
)
"""The columns that a filter needs."""


@dataclass(frozen=True)
class Filter:
    """A filter of rows. A row must match one value of every field; an empty field matches all rows.

    operators: `conv2d`, `aten.conv2d.default`, or with wildcards, `*norm*`.
    shapes: of any tensor argument, including lists of tensors: `1x64x56x56`, with `*` for any size
    of a dimension: `*x64x56x56`; `scalar` for a tensor without dimensions.
    dtypes: of any tensor argument: `float32`.
    targets, statuses, tuple_ids: as in the columns; a tuple id may be shortened.
    flags: the row has one of these flags. unflagged: it has no flags.
    text: part of the description, case-insensitive.
    """

    operators: Sequence[str] = ()
    shapes: Sequence[str] = ()
    dtypes: Sequence[str] = ()
    targets: Sequence[str] = ()
    statuses: Sequence[str] = ()
    flags: Sequence[str] = ()
    unflagged: bool = False
    tuple_ids: Sequence[str] = ()
    text: str | None = None


def matching(table: pa.Table, wanted: Filter) -> pa.ChunkedArray:
    """Whether each row matches. The table must have the columns FILTERED.

    Raises OpcostError for an operator, target, status, flag, dtype or shape that does not exist.
    """
    fits = pa.chunked_array([pa.repeat(True, len(table))])
    for column, test in _tests(table, wanted):
        fits = pc.and_(fits, _where(table[column], test))
    if wanted.unflagged:
        flags = pc.fill_null(pc.list_value_length(table["flags"]), 0)
        fits = pc.and_(fits, pc.equal(flags, 0))
    if wanted.flags:
        _check("flag", wanted.flags, {*FLAGS, *_values(pc.list_flatten(table["flags"]))})
        fits = pc.and_(fits, _with_any(table["flags"], wanted.flags))
    return fits


def _tests(table: pa.Table, wanted: Filter) -> Iterable[tuple[str, Callable[[str], bool]]]:
    """Text columns and the tests of their values."""
    if wanted.targets:
        _check("target", wanted.targets, _values(table["target"]))
        yield "target", wanted.targets.__contains__
    if wanted.statuses:
        _check("status", wanted.statuses, {*STATUSES, *_values(table["status"])})
        yield "status", wanted.statuses.__contains__
    if wanted.operators:
        yield "operator", _operators(wanted.operators, _values(table["operator"])).__contains__
    if wanted.tuple_ids:
        yield "tuple_id", lambda value: value.startswith(tuple(wanted.tuple_ids))
    if wanted.text is not None:
        text = wanted.text.lower()
        yield "description", lambda value: text in value.lower()
    if wanted.shapes or wanted.dtypes:
        yield "canonical_json", _tensor_test(table, wanted)


def _where(column: pa.ChunkedArray, test: Callable[[str], bool]) -> pa.Array:
    """Whether each text passes the test; null does not. Tests each distinct text once."""
    encoded = column.combine_chunks().dictionary_encode()
    passed = [value is not None and test(value) for value in encoded.dictionary.to_pylist()]
    return pc.fill_null(pa.array(passed, pa.bool_()).take(encoded.indices), False)


def _with_any(lists: pa.ChunkedArray, wanted: Sequence[str]) -> pa.Array:
    """Whether each list contains one of the texts."""
    found = pc.is_in(pc.list_flatten(lists), pa.array(wanted, pa.string()))
    rows = pc.list_parent_indices(lists).filter(found)
    return pc.is_in(pa.array(range(len(lists)), pa.int64()), rows.combine_chunks())


def _values(column: pa.ChunkedArray) -> set[str]:
    return set(pc.unique(column).drop_null().to_pylist())


def _operators(names: Sequence[str], found: set[str]) -> set[str]:
    """The full names that match names, short names and wildcards."""
    result = set()
    for name in names:
        matches = {
            full
            for full in found
            if any(
                fnmatch.fnmatchcase(each, name)
                for each in (full, full.rpartition(".")[0], short_name(full))
            )
        }
        if not matches:
            _check("operator", [name], {short_name(full) for full in found})
        result |= matches
    return result


def _tensor_test(table: pa.Table, wanted: Filter) -> Callable[[str], bool]:
    """A test for tuples: one tensor has one of the shapes, and one has one of the dtypes."""
    _check("dtype", wanted.dtypes, set(ELEMENT_BYTES))
    shapes = [_shape_pattern(shape) for shape in wanted.shapes]

    def fits(canonical_json: str) -> bool:
        try:
            tensors = [spec for _, spec in OperatorTuple.from_json(canonical_json).tensors]
        except OpcostError as error:
            held = table.filter(pc.equal(table["canonical_json"], canonical_json))["database"][0]
            raise OpcostError(
                f"{held}: {error}, so another program wrote it: name a database that opcost made"
            ) from error
        of_shape = not shapes or any(_has(spec, shape) for spec in tensors for shape in shapes)
        return of_shape and (
            not wanted.dtypes or any(spec.dtype in wanted.dtypes for spec in tensors)
        )

    return fits


def _shape_pattern(text: str) -> list[int | None]:
    """The sizes; None matches any size."""
    if text == "scalar":
        return []
    if not re.fullmatch(r"(\d+|\*)(x(\d+|\*))*", text):
        raise OpcostError(
            f"{text!r} is not a shape: write sizes separated by x, with * for any size of a "
            "dimension (1x64x*x*), or scalar"
        )
    return [None if size == "*" else int(size) for size in text.split("x")]


def _has(spec: TensorSpec, shape: Sequence[int | None]) -> bool:
    return len(spec.shape) == len(shape) and all(
        wanted in (None, size) for wanted, size in zip(shape, spec.shape, strict=True)
    )


def _check(kind: str, names: Iterable[str], allowed: set[str]) -> None:
    for name in names:
        if name not in allowed:
            raise OpcostError(f"there is no {kind} {name!r}. {closest(name, allowed)}".rstrip())
