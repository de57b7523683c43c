"""Select the rows of one study from a database that may hold several."""

from collections.abc import Mapping, Sequence

import pyarrow as pa


def asked_for(
    database: pa.Table, conditions: Mapping[str, str], tuple_ids: Sequence[str]
) -> pa.Table:
    """The rows of these tuples and targets, measured under each target's conditions.

    `conditions` are JSON, by target. Rows are ordered by target, then by tuple.
    """
    names = ("target", "tuple_id", "conditions_json")
    rows = zip(*(database[name].to_pylist() for name in names), strict=True)
    numbers = {key: number for number, key in enumerate(rows)}
    wanted = (
        (target, tuple_id, settings)
        for target, settings in conditions.items()
        for tuple_id in tuple_ids
    )
    found = [numbers[key] for key in wanted if key in numbers]
    return database.take(pa.array(found, pa.int64()))
