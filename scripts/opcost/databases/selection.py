"""The rows of a database that a study asks for: it may hold those of many."""

from collections.abc import Mapping, Sequence

import pyarrow as pa


def asked_for(
    database: pa.Table, conditions: Mapping[str, str], tuple_ids: Sequence[str]
) -> pa.Table:
    """The rows of these tuples, on these targets, measured as each target's conditions have it.

    `conditions` are JSON, by target. Rows are in the order of targets, then of tuples.
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
