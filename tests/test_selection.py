"""Of a database that holds more, a study takes the rows that it asks for."""

import pyarrow as pa
import pytest
from opcost.databases.selection import asked_for

DATABASE = pa.table(
    {
        "target": ["local", "local", "other"],
        "tuple_id": ["a", "b", "a"],
        "conditions_json": ["{}", "{}", "{}"],
    }
)


@pytest.mark.parametrize(
    ("conditions", "tuple_ids", "rows"),
    [
        ({"local": "{}"}, ["b", "a"], [("local", "b"), ("local", "a")]),
        ({"local": "{}", "other": "{}"}, ["a"], [("local", "a"), ("other", "a")]),
        ({"local": '{"threads": 2}'}, ["a"], []),
        ({"local": "{}"}, ["c"], []),
    ],
    ids=["tuples", "targets", "other conditions", "nothing"],
)
def test_rows_are_chosen_by_target_conditions_and_tuple(conditions, tuple_ids, rows):
    found = asked_for(DATABASE, conditions, tuple_ids).to_pylist()
    assert [(row["target"], row["tuple_id"]) for row in found] == rows


def test_of_an_empty_database_nothing_is_chosen():
    assert len(asked_for(DATABASE.slice(0, 0), {"local": "{}"}, ["a"])) == 0
