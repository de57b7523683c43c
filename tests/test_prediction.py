"""What nobody measured is predicted from what somebody did, with an interval, or refused.

The device of these tests is made up: 1 TFLOP/s, 100 GB/s, 5 us at least, and noise of 3 %.
"""

import itertools
import math
import random

import numpy as np
import pytest
from opcost.costs.completion import Target, completed
from opcost.costs.terms import Term
from opcost.prediction.features import features_of
from opcost.prediction.kriging import helpful
from opcost.prediction.predictor import Predictor, Unpredictable
from opcost.rows.flags import PREDICTED
from opcost.rows.quantities import ENERGY, TIME
from opcost.rows.runs import ModelRatio
from opcost.tuples.parsing import parse
from opcost.tuples.tuple_record import TupleRecord

SIZES = [16, 32, 64, 128, 256, 512, 1024]
NOISE = 0.03


def linear(rows, inputs, outputs):
    """The record of a linear layer."""
    flops = 2 * rows * inputs * outputs
    moved = 4 * (rows * inputs + inputs * outputs + rows * outputs)
    return TupleRecord(
        parse(f"linear({rows}x{inputs}, {outputs}x{inputs})"), (), True, flops, moved
    )


def true_s(record, speed=1.0):
    return (record.flops / 1e12 + record.bytes / 1e11 + 5e-6) / speed


def row(record, speed=1.0, noise=NOISE, seed=0):
    """A measured row, with 100 W."""
    drawn = random.Random(f"{record.operator_tuple.tuple_id} {seed}").gauss(0, noise)
    time_s = true_s(record, speed) * math.exp(drawn)
    return {
        "tuple_id": record.operator_tuple.tuple_id,
        "canonical_json": record.operator_tuple.canonical_json,
        "description": str(record.operator_tuple),
        "flops": record.flops,
        "bytes": record.bytes,
        "status": "ok",
        "error": None,
        "flags": [],
        "time_s": time_s,
        "energy_j": 100 * time_s,
        **dict.fromkeys(("host_time_s", "host_time_ci_low_s", "host_time_ci_high_s")),
    }


GRID = [linear(*sizes) for sizes in itertools.product(SIZES, repeat=3)]
KNOWN = random.Random(1).sample(GRID, 120)
OTHERS = [record for record in GRID if record not in KNOWN]
ROWS = [row(record) for record in KNOWN]


@pytest.fixture(scope="module")
def predictor():
    return Predictor(ROWS, TIME, {})


def test_sizes_between_measured_ones_are_predicted_within_their_intervals(predictor):
    found = [(predictor.predict(record).cost, row(record)["time_s"]) for record in OTHERS]
    errors = sorted(abs(cost.value / measured_s - 1) for cost, measured_s in found)
    assert errors[len(errors) // 2] < 0.05
    held = sum(cost.low < measured_s < cost.high for cost, measured_s in found) / len(found)
    assert held > 0.9


def test_the_nearest_measured_rows_are_those_of_the_most_similar_sizes(predictor):
    wanted = linear(64, 96, 128)
    nearest = predictor.predict(wanted).nearest
    assert len(nearest) == 3
    for each in nearest:
        known = parse(each["description"])
        sizes = [spec.shape for _, spec in known.tensors]
        assert max(abs(math.log2(a / b)) for a, b in zip(sizes[0], (64, 96), strict=True)) <= 2


def test_energy_is_predicted_as_time_is():
    cost = Predictor(ROWS, ENERGY, {}).predict(OTHERS[0]).cost
    assert cost.value == pytest.approx(100 * true_s(OTHERS[0]), rel=0.2)
    assert cost.low < cost.value < cost.high


@pytest.mark.parametrize(
    ("record", "rows", "why"),
    [
        (linear(16, 16, 32768), ROWS, "a size is 32 times beyond those measured there"),
        (linear(64, 64, 64), ROWS[:7], "only 7 tuples measured there, at least 8 are needed"),
        (
            TupleRecord(parse("relu(64x64)"), (), True, 0, 2**15),
            ROWS,
            "none of the 120 tuples measured there is of its operator",
        ),
    ],
)
def test_what_is_unlike_all_that_was_measured_is_refused(record, rows, why):
    with pytest.raises(Unpredictable, match=why):
        Predictor(rows, TIME, {}).predict(record)


def test_the_farther_beyond_the_measured_sizes_the_wider_the_interval(predictor):
    inside, near, far = (
        predictor.predict(linear(256, 256, outputs)) for outputs in (512, 2048, 8192)
    )
    assert (inside.octaves_beyond, near.octaves_beyond, far.octaves_beyond) == (0, 1, 3)
    widths = [each.cost.high / each.cost.value for each in (inside, near, far)]
    assert widths == sorted(widths)
    assert far.cost.low < true_s(linear(256, 256, 8192)) < far.cost.high


def test_what_another_device_has_is_predicted_from_it():
    """Even of sizes beyond all that were measured on this one."""
    large = linear(16384, 16384, 16384)
    there = {each["tuple_id"]: each["time_s"] for each in [*ROWS, row(large)]}
    here = [row(record, speed=3.0, seed=1) for record in KNOWN[:50]]
    cost = Predictor(here, TIME, {}, there).predict(large).cost
    assert cost.value == pytest.approx(true_s(large, speed=3.0), rel=0.1)
    assert cost.low < true_s(large, speed=3.0) < cost.high


def test_devices_that_share_fewer_than_twenty_tuples_predict_nothing_of_each_other():
    there = {each["tuple_id"]: each["time_s"] for each in ROWS}
    here = [row(record, speed=3.0) for record in KNOWN[:19]]
    with pytest.raises(Unpredictable, match="the two devices share 19 tuples"):
        Predictor(here, TIME, {}, there).predict(KNOWN[50])


def features(tuples):
    return [features_of(each.operator_tuple, each.flops, each.bytes) for each in tuples]


def test_fifty_helpful_tuples_predict_what_others_cost_better_than_fifty_at_random():
    """On a device with 4 times the FLOP/s, and half the bandwidth, of one that has all tuples."""

    def here(record):
        return row(record) | {"time_s": record.flops / 4e12 + record.bytes / 5e10 + 9e-6}

    costs = {each.operator_tuple.tuple_id: true_s(each) for each in GRID}

    def error(shared):
        """The mean error of tuples, weighted by time."""
        predictor = Predictor([here(each) for each in shared], TIME, {}, costs)
        others = [each for each in GRID if each not in shared]
        times_s = np.array([here(each)["time_s"] for each in others])
        predicted_s = predictor.expected(others)
        return float(np.average(np.abs(np.log(predicted_s / times_s)), weights=times_s))

    chosen = helpful(features(GRID), np.array([*costs.values()]), [], 50)
    at_random = [error(random.Random(seed).sample(GRID, 50)) for seed in range(5)]
    assert error([GRID[place] for place, _ in chosen]) < 0.7 * np.mean(at_random)


def test_helpful_tuples_are_those_that_weigh_and_that_the_known_ones_do_not_explain():
    tuples, known = [linear(16, 16, 16), linear(1024, 1024, 1024)], [linear(16, 16, 32)]
    equal = np.ones(2)
    assert helpful(features(tuples), equal, features(known), 1)[0][0] == 1
    assert helpful(features(tuples), np.array([1.0, 0.0]), [], 1)[0][0] == 0
    shares = [share for _, share in helpful(features(tuples), equal, [], 9)]
    assert len(shares) == 2
    assert 0.9 < sum(shares) < 1


def test_a_sum_is_as_uncertain_as_sums_of_other_models_were_off():
    """Models of errors that agree are off by all of them, so sums do not profit from many terms."""
    models = {
        f"m{n}": {each["tuple_id"]: 1 for each in ROWS[10 * n : 10 * n + 10]} for n in range(12)
    }
    biased = [
        {**each, "time_s": each["time_s"] * (1.3 if n // 10 % 2 else 0.7)}
        for n, each in enumerate(ROWS)
    ]
    halves = []
    for rows in (ROWS, biased):
        predictor = Predictor(rows, TIME, models)
        parts = [(1, predictor.predict(record)) for record in OTHERS[:50]]
        halves.append(predictor.error_of_sum(parts))
    assert halves[0] < 0.12
    assert halves[1] > 0.3


def terms(*known):
    """A model of three layers, of which those are measured."""
    measured = {each["tuple_id"]: each for each in known}
    return [
        Term(record, 2, measured.get(record.operator_tuple.tuple_id), False)
        for record in (OTHERS[0], OTHERS[1], KNOWN[0])
    ]


TARGET = Target(ROWS, [ModelRatio("net", False, None, None)], [])


def test_what_was_measured_stays_and_the_rest_is_predicted():
    given = terms(ROWS[0])
    found = completed(given, TARGET)
    assert found.terms[2] is given[2]
    assert [term.predicted for term in found.terms] == [True, True, False]
    assert found.terms[1].row["flags"] == [PREDICTED]
    assert found.terms[1].row["time_s"] == pytest.approx(true_s(OTHERS[1]), rel=0.2)
    assert set(found.predictions) == {term.record.operator_tuple.tuple_id for term in given[:2]}
    for low, high in (found.ranges[TIME], found.ranges[ENERGY]):
        assert 0 < low < 1 < high


def test_a_model_of_which_an_operator_failed_has_no_predictions():
    failed = row(OTHERS[0]) | {"status": "out_of_memory", "error": "too large", "time_s": None}
    given = terms(failed, ROWS[0])
    found = completed(given, TARGET)
    assert list(found.terms) == given
    assert not found.ranges
    assert not found.predictions


def test_no_prediction_is_better_than_the_best_of_the_measured_rows(predictor):
    for record in OTHERS[:50]:
        found = predictor.predict(record)
        assert found.best <= found.cost.low <= found.cost.value


def test_the_better_of_two_sources_counts():
    exact = [row(record, speed=2.0, noise=0) for record in GRID]
    found = completed(terms(), Target([row(r, noise=0) for r in KNOWN[:40]], [], [exact]))
    for term in found.terms:
        assert term.row["time_s"] == pytest.approx(true_s(term.record), rel=0.01)
