"""The product derives the same numbers from the same measurements."""

from tests.golden.__main__ import difference


def test_what_is_derived_from_fixed_measurements_is_as_expected():
    assert difference() == []
