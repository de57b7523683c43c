"""How much power may have been in a time that is too short for a sensor."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.power.stretches import NO_EDGES, PowerRange, Stretches

SHOWN = PowerRange(low_w=100.0, high_w=300.0, peak_w=700.0, resolution_s=0.2)
MOMENT_S = 2.0

watts = st.floats(0, 700)
seconds = st.floats(0.001, 0.199)


def test_what_lasts_longer_than_the_sensor_resolves_is_within_what_it_showed():
    least_w, most_w = SHOWN.of(np.array([0.2, 5.0, np.inf]))
    assert least_w == pytest.approx(100.0)
    assert most_w == pytest.approx(300.0)


@given(power_w=watts, length_s=seconds, other_w=watts)
def test_a_short_stretch_is_within_the_limits_that_its_mean_with_anything_else_allows(
    power_w, length_s, other_w
):
    share = length_s / SHOWN.resolution_s
    shown_w = share * power_w + (1 - share) * other_w
    shown = PowerRange(shown_w, shown_w, SHOWN.peak_w, SHOWN.resolution_s)
    (least_w,), (most_w,) = shown.of(np.array([length_s]))
    assert least_w - 1e-6 <= power_w <= most_w + 1e-6


def test_a_blur_counts_an_eighth_of_its_length_on_the_other_side_of_an_edge():
    side = Stretches.after(NO_EDGES, MOMENT_S, 0.5)
    assert side.blurred_j(SHOWN, 1.0) == pytest.approx((100 / 8, 300 / 8))


@given(edges_s=st.lists(st.floats(0, 4), max_size=8))
def test_more_edges_never_narrow_the_limits(edges_s):
    edges_s = np.unique(edges_s)
    for side in (Stretches.before, Stretches.after):
        least_j, most_j = side(edges_s, MOMENT_S, 0.1).limits_j(SHOWN)
        assert least_j <= 10.0 + 1e-9
        assert most_j >= 30.0 - 1e-9


def test_what_is_resolved_is_certain_and_the_rest_between_its_limits():
    long = Stretches.between(np.array([0.0, 5.0]), 1.0, 2.0)
    assert long.uncertain_j(SHOWN) == 0.0
    short = Stretches.between(np.array([1.0, 1.1, 1.2]), 1.0, 1.2)
    assert short.uncertain_j(SHOWN) == pytest.approx(600 * 0.2)


def test_of_a_device_without_a_known_limit_a_mean_may_hide_any_peak():
    unlimited = PowerRange(100.0, 300.0, np.inf, 0.2)
    least_w, most_w = unlimited.of(np.array([0.002, 0.2]))
    assert least_w == pytest.approx([0.0, 100.0])
    assert most_w == pytest.approx([30_000.0, 300.0])
