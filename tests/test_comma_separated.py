"""CSV says what the rows say, and nothing in it is a formula to a spreadsheet."""

import csv
import io
import json
import math
import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.rows.comma_separated import csv_parts

FORMULAS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"  # the last four: full-width
TEXT = st.text(st.characters(codec="utf-8"))
FLOATS = st.floats() | st.integers(-(2**60), 2**60).map(float)


def written(values, kind, first=0):
    """The cells of a column as a reader of CSV has them."""
    column = pa.array([*[None] * first, *values], kind)
    batch = pa.RecordBatch.from_arrays([column, column], names=["one", "two"]).slice(first)
    text = b"".join(csv_parts(["one", "two"], [batch])).decode()
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert header == ["one", "two"]
    assert all(one == two for one, two in rows)
    return [one for one, _ in rows]


def as_it_was(cell):
    """What a reader does who wants the text."""
    return cell[1:] if re.match(f"'+[{re.escape(FORMULAS)}]", cell) else cell


@pytest.mark.parametrize("first", FORMULAS)
def test_a_text_that_is_a_formula_gets_an_apostrophe(first):
    text = f'{first}HYPERLINK("http://example.org")'
    assert written([text, f"'{text}"], pa.string()) == [f"'{text}", f"''{text}"]


@pytest.mark.parametrize("text", ["conv2d(1x3, 2x3)", "'quoted'", "a=b", 'with "quotes",\r\nlines'])
def test_any_other_text_is_as_it_was(text):
    assert written([text], pa.string()) == [text]


@given(st.lists(TEXT, min_size=1))
def test_every_text_can_be_had_back(texts):
    cells = written(texts, pa.string())
    assert [as_it_was(cell) for cell in cells] == texts
    assert not any(cell.startswith(tuple(FORMULAS)) for cell in cells)


def test_numbers_are_numbers_and_null_is_nothing():
    assert written([-1.5, 2.0, None, 1e-6, 1e300], pa.float64()) == [
        *("-1.5", "2.0", "", "0.000001", "1e+300")
    ]
    assert written([-1, 2**60, None], pa.int64()) == ["-1", str(2**60), ""]
    assert written([True, False, None], pa.bool_()) == ["True", "False", ""]


def test_times_are_in_iso_8601():
    times = [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(1, 1, 1, 0, 0, 0, 120, tzinfo=UTC)]
    expected = [each.isoformat() for each in times]
    assert written(times, pa.timestamp("us", "UTC")) == expected


def alike(left, right):
    return (
        left == right
        if not isinstance(left, float)
        else left == right or (math.isnan(left) and math.isnan(right))
    )


@given(st.lists(FLOATS | st.none(), min_size=1), st.integers(0, 2))
def test_every_float_is_read_back_as_itself(numbers, first):
    for number, cell in zip(numbers, written(numbers, pa.float64(), first), strict=True):
        assert cell == "" if number is None else alike(float(cell), number)


@given(
    st.sampled_from(
        [
            (pa.float64(), FLOATS),
            (pa.string(), TEXT),
            (pa.bool_(), st.booleans()),
            (pa.int64(), st.integers(-(2**60), 2**60)),
        ]
    ),
    st.integers(0, 2),
    st.data(),
)
def test_lists_are_json_whatever_they_hold(of, first, data):
    kind, values = of
    lists = data.draw(st.lists(st.none() | st.lists(values | st.none()), min_size=1))
    for expected, cell in zip(lists, written(lists, pa.list_(kind), first), strict=True):
        found = json.loads(cell) if cell else None
        if expected is None or found is None:
            assert found == expected
        else:
            assert all(alike(*pair) for pair in zip(found, expected, strict=True))
            assert [type(each) for each in found] == [type(each) for each in expected]


@given(st.lists(st.none() | st.dictionaries(TEXT, TEXT | st.none()), min_size=1), st.integers(0, 2))
def test_maps_are_json(maps, first):
    items = [None if each is None else list(each.items()) for each in maps]
    cells = written(items, pa.map_(pa.string(), pa.string()), first)
    assert [json.loads(cell) if cell else None for cell in cells] == maps
