"""How far a breakdown can be trusted, in a word and its reason."""

import pytest
from opcost.costs.trust import trust, trust_in_all
from opcost.rows.quantities import ENERGY, HOST_TIME, TIME
from opcost.statistics import Estimate


def compared(error=None, estimate_s=0.9, end_to_end_s=1.0, **more):
    return {
        **TIME.of("estimate").columns(estimate_s and Estimate(estimate_s, None, None)),
        **TIME.of("end_to_end").columns(end_to_end_s and Estimate(end_to_end_s, None, None)),
        **ENERGY.of("end_to_end").columns(None),
        **TIME.error.columns(error and Estimate(*error)),
        **HOST_TIME.of("end_to_end").columns(None),
        "time_reason": None,
        "largest_share_difference": None,
        "end_to_end_flags": [],
        "disturbed_share": 0.0,
        "predicted_share": 0.0,
        **more,
    }


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (compared((-0.01, -0.05, 0.03)), "good: estimate -1.0% ± 4.0%"),
        (
            compared((0.01, 0.005, 0.015), largest_share_difference=0.0234),
            "good: estimate +1.0% ± 0.5%",
        ),
        (
            compared((0.01, -0.04, 0.06), predicted_share=0.083),
            "good: estimate +1.0% ± 5.0%, 8% predicted",
        ),
        (
            compared((0.01, 0.005, 0.015), largest_share_difference=0.134),
            "fair: shares off by 13 points",
        ),
        (
            compared((0.01, 0.005, 0.015), largest_share_difference=0.34),
            "poor: shares off by 34 points",
        ),
        (compared((-0.1, -0.3, 0.1)), "poor: estimate -10% ± 20%"),
        (compared((0.03, 0.02, 0.04)), "good: estimate +3.0% ± 1.0%, more than noise"),
        (compared((-0.1, -0.12, -0.08)), "fair: estimate -10.0% ± 2.0%, more than noise"),
        (compared((0.1, 0.01, 122.5)), "unverified: too noisy to say"),
        (compared((0.8, 0.5, 1.04)), "poor: estimate +80% ± 27%, more than noise"),
        (
            compared((-0.47, -0.49, -0.45), end_to_end_flags=["disturbed"]),
            "unverified: end to end disturbed by other programs",
        ),
        (
            compared((0.4, 0.3, 0.5), disturbed_share=0.3),
            "unverified: operators disturbed by other programs",
        ),
        (
            compared((0.4, 0.3, 0.5), disturbed_share=0.01),
            "poor: estimate +40% ± 10%, more than noise",
        ),
        (
            compared((0.1, 0.05, 0.15), host_bound_share=0.8, end_to_end_host_time_s=1.0),
            "unverified: the device waits for its host 80% of the time",
        ),
        (
            compared((0.1, None, None)),
            "unverified: the interval of the difference is unknown",
        ),
        (
            compared(estimate_s=None, time_reason="1 of 2 operator tuples is not measured"),
            "unverified: 1 of 2 operator tuples is not measured",
        ),
        (compared(end_to_end_s=None), "unverified: not measured end to end"),
    ],
    ids=[
        "agrees",
        "negligible",
        "predicted",
        "shares differ",
        "shares differ much",
        "wide",
        "small but real",
        "more than noise",
        "too noisy",
        "of no use",
        "disturbed end to end",
        "disturbed operators",
        "a little disturbed",
        "host",
        "no interval",
        "no estimate",
        "no measurement",
    ],
)
def test_trust_is_a_word_and_its_reason(row, said):
    assert str(trust(row)) == said


@pytest.mark.parametrize(
    ("energy", "said"),
    [
        (None, "good: estimate -1.0% ± 4.0%"),
        ((-0.2, -0.24, -0.16), "fair: energy: estimate -20.0% ± 4.0%, more than noise"),
    ],
)
def test_the_trust_in_all_is_the_lower_of_time_and_energy(energy, said):
    row = compared((-0.01, -0.05, 0.03))
    if energy:
        row |= ENERGY.of("end_to_end").columns(Estimate(1.0, 0.9, 1.1))
        row |= ENERGY.of("estimate").columns(Estimate(0.8, 0.7, 0.9))
        row |= ENERGY.error.columns(Estimate(*energy))
    assert str(trust_in_all(row)) == said
