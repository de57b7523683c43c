"""Plausibility checks of rows, a batch at a time, of the columns that were read.

Numbers are finite; a result is positive and lies in its interval; a failure has no result; counts
are not negative; settings agree with their JSON. Null is allowed where a value may be unknown.
"""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from opcost.errors import OpcostError
from opcost.rows.columns import OVERHEAD, RUNS
from opcost.rows.comparability import settings_of
from opcost.rows.quantities import (
    ENERGY,
    HOST_TIME,
    MEASURED,
    OVERHEADS,
    POWER,
    TIME,
    Quantity,
)
from opcost.target import SETTINGS
from opcost.tuples.operator_tuple import id_of

STATUSES = ("ok", "out_of_memory", "unsupported", "error", "timeout", "crashed")
"""The outcomes of a measurement."""

_MEASUREMENTS = ("operator", "model", "database", "merged")
_RESULTS = {
    TIME.value: (1e-12, 1e7),
    POWER.value: (1e-6, 1e6),
    ENERGY.value: (1e-15, 1e12),
    HOST_TIME.value: (1e-9, 1e5),
}
_LIMITS = {
    **_RESULTS,
    **{each.runs: _RESULTS[each.value] for each in MEASURED},
    **dict.fromkeys((each.run_errors for each in MEASURED), (0.0, 10.0)),
    **dict.fromkeys((TIME.low, HOST_TIME.low), (0.0, 1e7)),
    **dict.fromkeys(("utilisation", "power_gain_uncertainty"), (0.0, 1.0)),
    "largest_share_difference": (0.0, 1e3),
}
_EQUALLY_LONG = [column.name for column in RUNS if pa.types.is_list(column.type)]
"""Lists with a value for each run."""

_MAY_BE_NEGATIVE = "_ci_|_overhead_|sample_time|counter_|capped|throttle"
_NEVER_NEGATIVE = re.compile(rf"(?!.*({_MAY_BE_NEGATIVE})).*_(s|w|mhz)|.*_run_sd|load_average")
"""Seconds, watts and clocks. Negative can be limits of intervals, call overhead, times of the first
refreshes of a window, and differences of counters, which a driver may reset."""

_ROUNDING = 1e-9
_PRODUCT = 0.01
"""Relative tolerance of energy = time x power."""
_OVERHEAD_S = (-1e5, 1e5)
"""Intervals of few samples may be wide."""

_CONTROL = r"[\x00-\x1f\x7f-\x9f]"
_ONE_LINE = ("target", "tuple_id")
"""Text that messages show, not only tables: control characters could forge lines of a terminal."""

_IN_JSON = {
    "protocol_version": "protocol_version",
    "cache_state": "measurement.cache_state",
    **{name: f"target.{name}" for name, setting in SETTINGS.items() if setting.column},
}


_IDENTITY = {
    **dict.fromkeys(("operator", "database"), ("target", "tuple_id")),
    "model": ("model",),
    "merged": ("conditions_id", "tuple_id"),
}
"""The columns by which each row of a record is another one's; null is nobody's."""

_OVERHEADS = [column.name for column in OVERHEAD]


class Together:
    """Checks that no rows of a file contradict each other, batch after batch: a row for each tuple
    of a target, and one call overhead for all of them.
    """

    def __init__(self, record: str) -> None:
        self.keys = _IDENTITY.get(record, ())
        self._seen: set[int] = set()
        self._overheads: dict[str, tuple[Any, ...]] = {}

    def check(self, batch: pa.RecordBatch, path: Path, remedy: str) -> None:
        """Raise OpcostError for the first contradiction; the batch has the columns `keys`."""
        if not self.keys:
            return
        groups, *_ = columns = [batch[key].to_pylist() for key in self.keys]
        for row in zip(*columns, strict=True):
            key = hash(row)
            if key in self._seen and row[0] is not None:
                raise _two(path, "rows", " ".join(row), remedy)
            self._seen.add(key)
        held = [name for name in _OVERHEADS if name in batch.schema.names]
        columns = [batch[name].to_pylist() for name in held]
        for group, *values in zip(groups, *columns, strict=True) if held else ():
            found = tuple(values)
            if group is not None and self._overheads.setdefault(group, found) != found:
                raise _two(path, "call overheads", group, remedy)


def _two(path: Path, what: str, of: str, remedy: str) -> OpcostError:
    return OpcostError(f"{path} has two {what} of {of}, as opcost never writes: {remedy}")


class Problem(NamedTuple):
    """An impossible value, and what is allowed; `position` is the number of its row."""

    position: int
    column: str
    value: Any
    allowed: str


def check(batch: pa.RecordBatch, record: str, path: Path, remedy: str) -> None:
    """Raise OpcostError for the first impossible value of a batch."""
    problem = next(problems(batch, record), None)
    if problem is None:
        return
    key = next((name for name in ("tuple_id", "model") if name in batch.schema.names), None)
    row = f"row {problem.position}" if key is None else batch[key][problem.position].as_py()
    raise OpcostError(
        f"{path} is damaged: {problem.column} of {row} is {problem.value!r:.200}; allowed: "
        f"{problem.allowed}: {remedy}"
    )


def problems(batch: pa.RecordBatch, record: str) -> Iterator[Problem]:
    """The impossible values in a batch of a record, at least the first of each check."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    known = {name: each for name, each in columns.items() if each.null_count < len(each)}
    for name, column in known.items():
        yield from _not_finite(name, column)
    if record not in _MEASUREMENTS:
        return
    for name, column in known.items():
        yield from _out_of_range(name, column)
    for quantity in (TIME, POWER, ENERGY, HOST_TIME, *OVERHEADS.values()):
        if set(quantity.names) <= known.keys():
            yield from _outside_interval(quantity, known)
    if "status" in columns:
        yield from _inconsistent_status(columns)
    yield from _forging(columns)
    yield from _inconsistent_runs(columns)
    yield from _inconsistent_energy(columns)
    yield from _inconsistent_settings(columns)
    yield from _inconsistent_tuple(columns)


def _not_finite(name: str, column: pa.Array) -> Iterator[Problem]:
    """NaN and infinity, also in lists."""
    values = _values(column)
    # The sum is finite only if each value is, and faster.
    if pa.types.is_floating(values.type) and not math.isfinite(pc.sum(values).as_py() or 0.0):
        wrong = pc.invert(pc.is_finite(values))
        yield from _among(name, column, wrong, "a finite number, or null")


def _forging(columns: Mapping[str, pa.Array]) -> Iterator[Problem]:
    for name in columns.keys() & {*_ONE_LINE}:
        found = pc.match_substring_regex(columns[name], _CONTROL)
        yield from _where(name, columns[name], found, "text without control characters")


def _out_of_range(name: str, column: pa.Array) -> Iterator[Problem]:
    limits, values = _LIMITS.get(name), _values(column)
    if "_overhead_" in name and pa.types.is_floating(values.type):
        limits = _OVERHEAD_S
    if limits is not None:
        low, high = limits
        wrong = pc.or_(pc.less(values, low), pc.greater(values, high))
        yield from _among(name, column, wrong, f"{low:g} to {high:g}, or null")
    elif pa.types.is_integer(values.type) or _NEVER_NEGATIVE.fullmatch(name):
        yield from _among(name, column, pc.less(values, 0), "0 or more, or null")


def _outside_interval(quantity: Quantity, columns: Mapping[str, pa.Array]) -> Iterator[Problem]:
    value, low, high = (columns[name] for name in quantity.names)
    slack = pc.multiply(pc.abs(value), _ROUNDING)
    allowed = f"{quantity.low} <= {quantity.value} <= {quantity.high}"
    yield from _where(quantity.low, low, pc.greater(low, pc.add(value, slack)), allowed)
    yield from _where(quantity.high, high, pc.less(high, pc.subtract(value, slack)), allowed)


def _inconsistent_status(columns: Mapping[str, pa.Array]) -> Iterator[Problem]:
    status = columns["status"]
    known = pc.is_in(status, pa.array(STATUSES))
    yield from _where("status", status, pc.invert(known), ", ".join(STATUSES))
    ok = pc.equal(status, "ok")
    for name in ("time_s", "flags", "target"):
        if name in columns:
            wrong = pc.and_(ok, pc.is_null(columns[name]))
            yield from _where(name, columns[name], wrong, "a value where status is ok")
    for name in _RESULTS.keys() & columns.keys():
        wrong = pc.and_(pc.invert(ok), pc.is_valid(columns[name]))
        yield from _where(name, columns[name], wrong, "null where status is not ok")


def _inconsistent_settings(columns: Mapping[str, pa.Array]) -> Iterator[Problem]:
    """Settings with their own columns must agree with `conditions_json`."""
    if "conditions_json" not in columns:
        return
    names = [name for name in _IN_JSON if name in columns]
    values = [columns[name].to_pylist() for name in ("conditions_json", *names)]
    seen: dict[tuple[Any, ...], int] = {}
    for position, row in enumerate(zip(*values, strict=True)):
        seen.setdefault(row, position)
    for (text, *found), position in seen.items():
        if text is None:
            continue
        try:
            settings = settings_of(text)
        except (ValueError, AttributeError, RecursionError):
            yield Problem(position, "conditions_json", text, "a JSON object of settings")
            continue
        for name, value in zip(names, found, strict=True):
            stated = settings.get(_IN_JSON[name], value)
            if value is not None and stated != value:
                yield Problem(position, name, value, f"{stated!r}, as in conditions_json")


def _inconsistent_runs(columns: Mapping[str, pa.Array]) -> Iterator[Problem]:
    """All lists over the runs of a row are equally long, and a time that lists its runs has one."""
    lengths = {
        name: pc.list_value_length(columns[name]) for name in _EQUALLY_LONG if name in columns
    }
    for name, each in lengths.items():
        wrong = pc.not_equal(each, pc.coalesce(*lengths.values()))
        yield from _where(name, columns[name], wrong, "a value for each run")
    if TIME.runs in columns and "time_s" in columns:
        runs = columns[TIME.runs]
        parents = pc.filter(pc.list_parent_indices(runs), pc.is_valid(runs.flatten()))
        known = np.isin(np.arange(len(runs)), np.asarray(parents))
        listed = pc.and_(pc.is_valid(runs), pc.is_valid(columns["time_s"]))
        wrong = pc.and_(listed, pa.array(~known))
        yield from _where(TIME.runs, runs, wrong, "a value of at least one run")


def _inconsistent_energy(columns: Mapping[str, pa.Array]) -> Iterator[Problem]:
    energy = columns.get("energy_j")
    if energy is None:
        return
    if "energy_reason" in columns:
        wrong = pc.and_(pc.is_valid(energy), pc.is_valid(columns["energy_reason"]))
        yield from _where("energy_j", energy, wrong, "null where energy_reason says why")
    if "power_w" in columns and "time_s" in columns:
        unknown = pc.and_(pc.is_valid(energy), pc.is_null(columns["power_w"]))
        yield from _where("energy_j", energy, unknown, "null where power_w is null")
        product = pc.multiply(columns["power_w"], columns["time_s"])
        wrong = pc.greater(pc.abs(pc.subtract(energy, product)), pc.multiply(product, _PRODUCT))
        yield from _where("energy_j", energy, wrong, "time_s x power_w")


def _inconsistent_tuple(columns: Mapping[str, pa.Array]) -> Iterator[Problem]:
    if "tuple_id" not in columns or "canonical_json" not in columns:
        return
    texts = columns["canonical_json"].to_pylist()
    ids = columns["tuple_id"].to_pylist()
    for position, (tuple_id, text) in enumerate(zip(ids, texts, strict=True)):
        if text is not None and tuple_id != id_of(text):
            yield Problem(position, "tuple_id", tuple_id, "the id of the row's canonical_json")
            return


def _values(column: pa.Array) -> pa.Array:
    """The values of a column, or of its lists."""
    return column.flatten() if pa.types.is_list(column.type) else column


def _among(name: str, column: pa.Array, wrong: pa.Array, allowed: str) -> Iterator[Problem]:
    """The first of a column's `_values` for which a condition is true; null does not count."""
    place = pc.index(wrong, True).as_py()
    if place >= 0:
        of_lists = pa.types.is_list(column.type)
        row = pc.list_parent_indices(column)[place].as_py() if of_lists else place
        yield Problem(row, name, _values(column)[place].as_py(), allowed)


def _where(name: str, column: pa.Array, wrong: pa.Array, allowed: str) -> Iterator[Problem]:
    """The first row for which a condition is true; null does not count."""
    position = pc.index(wrong, True).as_py()
    if position >= 0:
        yield Problem(position, name, column[position].as_py(), allowed)
