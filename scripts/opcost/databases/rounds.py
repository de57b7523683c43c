"""Rows of a database from the executions of each tuple, one for each round.

A row keeps what each execution found (`execution_...`), so that it can be combined again when the
scatter of its target is known better. Its other columns say how executions are joined in them.
"""

import itertools
from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import pyarrow as pa

from opcost.executions import Executions, Scatter, batch_error, scatter_of
from opcost.rows import comparability, schemas
from opcost.rows.column import Joining
from opcost.rows.columns import DISTURBED_EXECUTIONS, EXECUTIONS, MEASUREMENT
from opcost.rows.executed import executions_in, undisturbed
from opcost.rows.quantities import EXECUTED, POWER, TIME, Quantity

Row = dict[str, Any]

JOINED = pa.schema(
    [
        *schemas.OPERATOR,
        *(schemas.DATABASE.field(each.name) for each in (*EXECUTIONS, DISTURBED_EXECUTIONS)),
    ],
    schemas.OPERATOR.metadata,
)
"""The columns of a measurement, and those of its executions."""


def joined(rows: Sequence[Row], rounds: Sequence[int]) -> Row:
    """One row for the executions of a tuple. Those of other conditions, or failed, are left out; so
    are disturbed ones where others are not.

    Conditions are those of the first round, which is measured again before the others.
    """
    wanted = comparability.meaning(rows[0]["conditions_json"])
    measured = [
        (row, number)
        for row, number in zip(rows, rounds, strict=True)
        if row["status"] == "ok" and comparability.meaning(row["conditions_json"]) == wanted
    ]
    base = measured[0][0] if measured else rows[0]
    pairs = [pair for pair in measured if comparability.conflict([base, pair[0]]) is None]
    if not pairs:
        return base
    found = undisturbed([row for row, _ in pairs])
    numbers = [number for row, number in pairs if row in found]
    columns: Row = {
        column.name: _JOINED[column.joining]([row[column.name] for row in found])
        for column in MEASUREMENT
    }
    columns["device_time_s"] = _total([row["device_time_s"] for row in rows])
    columns[DISTURBED_EXECUTIONS.name] = len(pairs) - len(found)
    columns["execution_round"] = numbers
    columns["execution_core_speed_per_s"] = [row["core_speed_per_s"] for row in found]
    if columns["batch_time_s"] is not None:
        columns["execution_batches"] = [len(row["batch_time_s"]) for row in found]
    for quantity in EXECUTED:
        estimates = [quantity.read(row) for row in found]
        columns[quantity.executed] = [each and each.value for each in estimates]
        columns[quantity.executed_error] = [each and batch_error(each) for each in estimates]
    if any(columns[POWER.executed]):
        columns["energy_reason"] = None
    return base | columns


def _of_most(flags: Sequence[Sequence[str] | None]) -> list[str]:
    known = [found or [] for found in flags]
    names = dict.fromkeys(name for found in known for name in found)
    return [name for name in names if 2 * sum(name in found for found in known) >= len(known)]


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _known(values: Sequence[Sequence[Any] | None]) -> list[Any] | None:
    known = [each for each in values if each is not None]
    return list(itertools.chain.from_iterable(known)) if known else None


def _in_order(values: Sequence[Sequence[Any] | None]) -> list[Any] | None:
    return None if None in values else _known(values)


_JOINED: Mapping[Joining, Callable[[Sequence[Any]], Any]] = {
    Joining.FIRST: lambda values: values[0],
    Joining.LAST: lambda values: values[-1],
    Joining.TOTAL: _total,
    Joining.ALL: all,
    Joining.MOST: _of_most,
    Joining.KNOWN: _known,
    Joining.IN_ORDER: _in_order,
}


class Scatters:
    """The scatter of each quantity on each target, from the joined rows that it has seen."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, Quantity], list[Executions]] = defaultdict(list)
        self._speeds: dict[str, array[float]] = defaultdict(lambda: array("d"))
        self._found: dict[str, dict[Quantity, Scatter]] = {}

    def note(self, batch: pa.RecordBatch) -> None:
        """Take these rows into account."""
        names = [name for each in EXECUTED for name in (each.executed, each.executed_error)]
        for row in batch.select(["target", "execution_core_speed_per_s", *names]).to_pylist():
            self._speeds[row["target"]].extend(
                filter(None, row["execution_core_speed_per_s"] or ())
            )
            for quantity in EXECUTED:
                found = executions_in(row, quantity)
                if found is not None and len(found.values) > 1:
                    self._seen[row["target"], quantity].append(found)

    def of(self, target: str) -> Mapping[Quantity, Scatter]:
        """The scatter of those quantities for which it is known. Call it after all rows."""
        if target not in self._found:
            speeds = self._speeds[target]
            scatters = {
                each: scatter_of(self._seen[target, each], speeds if each == TIME else ())
                for each in EXECUTED
            }
            self._found[target] = {each: found for each, found in scatters.items() if found}
        return self._found[target]

    def usual_speed_per_s(self, target: str) -> float | None:
        """The median speed of the core over all executions, if it is known."""
        return median(self._speeds[target]) if self._speeds[target] else None
