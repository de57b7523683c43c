"""Rows of a database from the runs of each tuple, one in each round.

A row keeps the value of each run (`run_...`), so that it can be combined with the run-to-run
variation of its target. How runs are joined in other columns is stated with each column.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opcost.noise import block_error
from opcost.rows import comparability
from opcost.rows.column import Joining
from opcost.rows.columns import MEASUREMENT
from opcost.rows.quantities import MEASURED, POWER
from opcost.rows.runs import result_of, undisturbed

Row = dict[str, Any]


def joined(rows: Sequence[Row], rounds: Sequence[int]) -> Row:
    """One row for the runs of a tuple, with their combined result. Runs under other conditions, and
    failed ones, are left out; so are disturbed ones where others are not.

    Conditions are taken from the first round, which is measured again before the others.
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
    columns["disturbed_runs"] = len(pairs) - len(found)
    columns["run_round"] = numbers
    if columns["block_time_s"] is not None:
        columns["run_blocks"] = [len(row["block_time_s"]) for row in found]
    for quantity in MEASURED:
        estimates = [quantity.read(row) for row in found]
        if any(estimates):
            columns[quantity.runs] = [each and each.value for each in estimates]
            columns[quantity.run_errors] = [each and block_error(each) for each in estimates]
    if columns.get(POWER.runs):
        columns["energy_reason"] = None
    row = base | columns
    return row | result_of(row)


def _of_most(flags: Sequence[Sequence[str] | None]) -> list[str]:
    known = [found or [] for found in flags]
    names = dict.fromkeys(name for found in known for name in found)
    return [name for name in names if 2 * sum(name in found for found in known) >= len(known)]


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _in_order(values: Sequence[Sequence[Any] | None]) -> list[Any] | None:
    known = [each for each in values if each is not None]
    return list(itertools.chain.from_iterable(known)) if len(known) == len(values) else None


_JOINED: Mapping[Joining, Callable[[Sequence[Any]], Any]] = {
    Joining.FIRST: lambda values: values[0],
    Joining.LAST: lambda values: values[-1],
    Joining.TOTAL: _total,
    Joining.ALL: all,
    Joining.MOST: _of_most,
    Joining.IN_ORDER: _in_order,
}
