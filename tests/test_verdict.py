"""How far a breakdown can be trusted, in words."""

import pytest
from opcost.costs.verdict import DOUBTFUL, TRUSTED, UNKNOWN, judgement
from opcost.rows.quantities import HOST_TIME, TIME
from opcost.statistics import Estimate


def compared(error=None, total_s=0.9, whole_s=1.0, **more):
    return {
        **TIME.of("estimate").columns(total_s and Estimate(total_s, None, None)),
        **TIME.of("end_to_end").columns(whole_s and Estimate(whole_s, None, None)),
        **TIME.error.columns(error and Estimate(*error)),
        **HOST_TIME.of("end_to_end").columns(None),
        "time_reason": None,
        "largest_share_difference": None,
        "end_to_end_flags": [],
        "flag_counts": {},
        **more,
    }


@pytest.mark.parametrize(
    ("row", "kind", "sentence"),
    [
        (
            compared((-0.01, -0.05, 0.03)),
            TRUSTED,
            "The breakdown can be trusted to ±5.0% (sum 900 ms, whole 1.00 s).",
        ),
        (
            compared((0.01, 0.005, 0.015), largest_share_difference=0.0234),
            TRUSTED,
            "The breakdown can be trusted to ±1.5% (sum 900 ms, whole 1.00 s). Shares differ by "
            "up to 2.3 pp from those in the running model.",
        ),
        (
            compared((0.01, 0.005, 0.015), largest_share_difference=0.134),
            DOUBTFUL,
            "The breakdown can be trusted to ±1.5% (sum 900 ms, whole 1.00 s). Shares differ by "
            "up to 13 pp from those in the running model.",
        ),
        (
            compared((-0.1, -0.3, 0.1)),
            DOUBTFUL,
            "The breakdown can be trusted to ±30% (sum 900 ms, whole 1.00 s).",
        ),
        (
            compared((0.03, 0.02, 0.04)),
            TRUSTED,
            "The breakdown can be trusted to ±4.0% (sum 900 ms, whole 1.00 s). "
            "The sum is 3.0% too high, which is more than noise.",
        ),
        (
            compared((-0.1, -0.12, -0.08)),
            DOUBTFUL,
            "The sum is 10% too low, which is more than noise: trust the breakdown to ±12% "
            "(sum 900 ms, whole 1.00 s).",
        ),
        (
            compared((0.1, 0.01, 122.5)),
            DOUBTFUL,
            "Too noisy to say whether to trust the breakdown (sum 900 ms, whole 1.00 s): run again "
            "on a quiet machine.",
        ),
        (
            compared((0.8, 0.5, 1.04)),
            DOUBTFUL,
            "The sum is 80% too high, which is more than noise: do not trust the breakdown "
            "(sum 900 ms, whole 1.00 s).",
        ),
        (
            compared((-0.47, -0.49, -0.45), end_to_end_flags=["disturbed"]),
            UNKNOWN,
            "Not verified: the measured model was disturbed by other programs (sum 900 ms, whole "
            "1.00 s): opcost retry --flag disturbed on a quiet machine decides.",
        ),
        (
            compared((0.4, 0.3, 0.5), flag_counts={"disturbed": 1}),
            UNKNOWN,
            "Not verified: operators of the sum were disturbed by other programs (sum 900 ms, "
            "whole 1.00 s): opcost retry --flag disturbed on a quiet machine decides.",
        ),
        (
            compared((0.1, 0.05, 0.15), host_bound_share=0.8, end_to_end_host_time_s=1.0),
            UNKNOWN,
            "The model waits for its host 80% of the time, so the whole says little about "
            "operators (sum 900 ms, whole 1.00 s).",
        ),
        (
            compared((0.1, None, None)),
            UNKNOWN,
            "Not verified: the uncertainty is unknown (sum 900 ms, whole 1.00 s).",
        ),
        (
            compared(total_s=None, time_reason="1 of 2 operator tuples are not measured"),
            UNKNOWN,
            "Not verified: 1 of 2 operator tuples are not measured.",
        ),
    ],
    ids=[
        "agrees",
        "negligible",
        "shares differ",
        "wide",
        "small but real",
        "more than noise",
        "too noisy",
        "of no use",
        "disturbed whole",
        "disturbed sum",
        "host",
        "no interval",
        "no sum",
    ],
)
def test_the_verdict_in_words(row, kind, sentence):
    found = judgement(row)
    assert (found.kind, found.sentence) == (kind, sentence)
