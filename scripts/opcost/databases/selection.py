"""Select the rows of one study from a database that may hold several."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opcost.rows.comparability import meaning
from opcost.rows.runs import COLUMNS


def asked_for(
    database: pa.Table, conditions: Mapping[str, str], tuple_ids: Sequence[str]
) -> pa.Table:
    """The rows of these tuples and targets whose conditions mean the same as each target's.

    `conditions` are JSON, by target. Rows are ordered by target, then by tuple.
    """
    names = ("target", "tuple_id", "conditions_json")
    rows = zip(*(database[name].to_pylist() for name in names), strict=True)
    numbers = {
        (target, tuple_id, meaning(settings)): number
        for number, (target, tuple_id, settings) in enumerate(rows)
    }
    wanted = (
        (target, tuple_id, meaning(settings))
        for target, settings in conditions.items()
        for tuple_id in tuple_ids
    )
    found = [numbers[key] for key in wanted if key in numbers]
    return database.take(pa.array(found, pa.int64()))


def rows_of(
    database: pa.Table, target: str, conditions_id: str | None = None
) -> list[dict[str, Any]]:
    """The rows of a target for its noise; in a merged database, under these conditions."""
    wanted = pc.equal(database["target"], target)
    if conditions_id is not None:
        wanted = pc.and_(wanted, pc.equal(database["conditions_id"], conditions_id))
    rows: list[dict[str, Any]] = database.select(COLUMNS).filter(wanted).to_pylist()
    return rows
