"""The answer table: every number of a study in a row of its own, and tables that are views."""

import pyarrow.parquet as pq
import pytest
from opcost.costs.answers import all_answers, comparison_rows, costs_of_models
from opcost.costs.comparison import Tables
from opcost.rows import records, schemas
from opcost.rows.quantities import TIME

from tests.comparisons import FAILED


@pytest.fixture
def tables(compare):
    """Those of a model on two targets, on one of which its end-to-end measurement failed."""
    found = [compare(), compare(reference=FAILED)]
    comparison = [row | {"target": target} for (row, _), target in zip(found, "ab", strict=True)]
    shares = [row | {"target": "a"} for row in found[0][1]]
    return Tables(comparison, shares, [], [], [])


def written(tables, tmp_path):
    path = tmp_path / "answers.parquet"
    records.write(path, schemas.ANSWERS, all_answers(tables))
    return path


def test_the_costs_of_models_are_read_back_from_their_answers(tables, tmp_path):
    costs = costs_of_models(written(tables, tmp_path))
    for row, cost in zip(tables.comparison, costs, strict=True):
        for name in schemas.MODEL_COSTS.names:
            expected, found = row.get(name), cost[name]
            if name == "flag_counts":
                expected, found = dict(expected), dict(found)
            assert found == expected or not (found or expected), name


def test_a_number_stands_with_its_interval_in_a_row_of_its_own(tables, tmp_path):
    rows = pq.read_table(written(tables, tmp_path)).to_pandas().query("target == 'a'")
    one = rows.query("part == 'model' and source == 'estimate' and quantity == 'time_s'")
    expected = TIME.of("estimate").read(tables.comparison[0])
    assert one[["value", "low", "high"]].to_numpy().tolist() == [
        [expected.value, expected.low, expected.high]
    ]
    conv = rows.query("part == 'operator:aten.conv2d.default' and quantity == 'time_s'")
    assert conv["calls"].tolist() == [tables.shares[0]["calls"]]


def test_what_is_unknown_is_null_with_its_reason(tables, tmp_path):
    rows = pq.read_table(written(tables, tmp_path)).to_pandas().query("target == 'b'")
    assert rows.query("source == 'end_to_end' and quantity == 'time_s'")["value"].isna().all()
    [why] = rows.query("quantity == 'time_relative_error'")["reason"]
    assert why == "it was not measured end to end: out_of_memory: too large"


def test_the_comparison_is_a_view_of_at_most_26_columns(tables):
    [first, _] = comparison_rows(tables.comparison)
    assert list(first) == schemas.COMPARISON.names
    assert len(first) <= 26
    assert first["trust"].partition(":")[0] in ("good", "fair", "poor", "unverified")
