"""A number with an interval has three columns, whose names one module knows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.rows.quantities import (
    ENERGY,
    POWER,
    TIME,
    Quantity,
)
from opcost.statistics import Estimate

from tests.documents import ROOT

PACKAGE = ROOT / "scripts/opcost"
NUMBERS = st.floats(allow_nan=False)
ESTIMATES = st.one_of(st.none(), st.builds(Estimate, NUMBERS, NUMBERS, NUMBERS))


@pytest.mark.parametrize(
    ("quantity", "names"),
    [
        (TIME, ("time_s", "time_ci_low_s", "time_ci_high_s")),
        (POWER, ("power_w", "power_ci_low_w", "power_ci_high_w")),
        (
            ENERGY.of("end_to_end"),
            ("end_to_end_energy_j", "end_to_end_energy_ci_low_j", "end_to_end_energy_ci_high_j"),
        ),
        (
            TIME.error,
            ("time_relative_error", "time_relative_error_ci_low", "time_relative_error_ci_high"),
        ),
    ],
)
def test_names_say_the_quantity_the_limit_and_the_unit(quantity, names):
    assert quantity.names == names


@given(ESTIMATES)
def test_columns_hold_the_estimate(estimate):
    assert TIME.read(TIME.columns(estimate)) == estimate


def test_no_other_module_makes_names_of_limits():
    sources = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.js"), *PACKAGE.rglob("*.html")]
    naming = {
        path.relative_to(PACKAGE).as_posix()
        for path in sources
        if "_ci_low" in path.read_text() or "_ci_high" in path.read_text()
    }
    assert naming == {"rows/quantities.py"}


def test_a_number_is_shown_with_half_of_its_interval():
    assert TIME.shown(TIME.columns(Estimate(2e-3, 1.9e-3, 2.1e-3))) == "2.00 ms ± 5.0%"
    assert ENERGY.shown(ENERGY.columns(Estimate(0.4, None, None))) == "400.0 mJ"
    assert Quantity("power", "w").shown({"power_w": None}) == "-"


def test_a_wide_and_lopsided_interval_is_shown_with_its_limits():
    columns = TIME.columns(Estimate(2e-3, 1.8e-3, 3e-3))
    assert TIME.shown(columns) == "2.0 ms [1.8 ms, 3.0 ms]"
    very_wide = TIME.columns(Estimate(38e-3, 24.4e-3, 60.5e-3))
    assert TIME.shown(very_wide) == "38 ms [24 ms, 60 ms]"
    too_wide = TIME.columns(Estimate(38e-3, 19.4e-3, 72.5e-3))
    assert TIME.shown(too_wide) == "too noisy to say"
