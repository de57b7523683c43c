"""Intervals over executions hold what further executions find, on drawn machines."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.executions import (
    Executions,
    Scatter,
    SpeedLaw,
    SpeedsBeside,
    at_speed_of_run,
    averaged,
    batch_error,
    combined,
    in_any_run,
    near_the_middle,
    outlying,
    scatter_of,
    speeds_beside,
    variance_of_one,
    weights,
)
from opcost.statistics import Estimate, ratio

times = st.lists(st.floats(1e-6, 1e2), min_size=1, max_size=6)


def drawn(generator, subjects, counts, sd, degrees, batch_sd=0.003):
    """The executions of subjects of true value 1, whose variances are drawn as assumed."""
    found = []
    for number in range(subjects):
        count = counts[number % len(counts)]
        variance = sd**2 * (degrees / generator.chisquare(degrees) if degrees else 1.0)
        errors = np.full(count, batch_sd) * generator.uniform(0.5, 2, count)
        logs = generator.normal(0, math.sqrt(variance), count) + generator.normal(0, errors)
        found.append(Executions(np.exp(logs).tolist(), errors.tolist()))
    return found


def coverage(subjects):
    scatter = scatter_of(subjects)
    estimates = [combined(each, scatter) for each in subjects]
    return np.mean([each.low <= 1 <= each.high for each in estimates])


@pytest.mark.parametrize("counts", [[2], [3], [1, 1, 3], [1, 2, 4]])
@pytest.mark.parametrize(("sd", "degrees"), [(0.01, 4), (0.03, 10), (0.1, 5), (0.02, None)])
def test_intervals_hold_the_truth_as_often_as_they_say(counts, sd, degrees):
    generator = np.random.default_rng(0)
    found = np.mean([coverage(drawn(generator, 120, counts, sd, degrees)) for _ in range(12)])
    assert 0.935 <= found <= 0.97


@pytest.mark.parametrize("counts", [[2], [1, 3]])
def test_the_scatter_of_many_subjects_is_found(counts):
    subjects = drawn(np.random.default_rng(1), 2000, counts, 0.02, 5)
    found = scatter_of(subjects)
    assert found.sd == pytest.approx(0.02, rel=0.1)
    assert found.degrees_of_freedom == pytest.approx(5, rel=0.4)


@pytest.mark.parametrize("slope", [-0.3, 0.0, 0.2])
def test_short_subjects_may_scatter_more_than_long_ones(slope):
    generator = np.random.default_rng(4)
    subjects, trend = [], Scatter(0.05, 6.0, slope, 1e-4)
    for time_s in np.exp(generator.uniform(math.log(1e-5), math.log(1e-3), 900)):
        [each] = drawn(generator, 1, [3], trend.at(time_s).sd, 6.0)
        subjects.append(Executions([time_s * value for value in each.values], each.batch_errors))
    found = scatter_of(subjects)
    assert found.slope == pytest.approx(slope, abs=0.101)
    for time_s in (2e-5, 1e-4, 5e-4):
        assert found.at(time_s).sd == pytest.approx(trend.at(time_s).sd, rel=0.2)


def test_a_trend_ends_ten_times_beyond_the_centre():
    trend = Scatter(0.05, 6.0, -0.5, 1e-3)
    assert trend.at(1e-1) == trend.at(1e-2)
    assert trend.at(1e-2).sd == pytest.approx(0.05 / 10**0.5)
    assert trend.at(1e-2).at(1.0) == trend.at(1e-2)


def test_executions_that_batches_explain_have_next_to_no_scatter():
    subjects = drawn(np.random.default_rng(2), 300, [3], 0.0, None, batch_sd=0.02)
    assert scatter_of(subjects).sd < 0.005


def test_few_subjects_do_not_tell():
    subjects = drawn(np.random.default_rng(3), 6, [1, 2], 0.02, 5)
    assert scatter_of(subjects) is None


def at_speeds(generator, subjects, exponent, speed_sd, noise_sd=0.0):
    """The executions on a core whose speed varies between them, and is known with noise."""
    found = []
    for each in subjects:
        true = np.exp(generator.normal(0, speed_sd, len(each.values)))
        known = true * np.exp(generator.normal(0, noise_sd, len(true)))
        values = np.array(each.values) / true**exponent
        found.append(Executions(values.tolist(), each.batch_errors, known.tolist()))
    return found


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.2])
def test_how_times_follow_the_speed_of_the_core_is_found(exponent):
    generator = np.random.default_rng(5)
    subjects = at_speeds(generator, drawn(generator, 400, [1, 3], 0.02, 5), exponent, 0.06)
    found = scatter_of(subjects)
    assert found.speed_law.exponent == pytest.approx(
        exponent, abs=3 * found.speed_law.exponent_error
    )
    assert found.speed_law.exponent_error < 0.05
    assert found.speed_law.usual_speed == pytest.approx(1, abs=0.02)
    assert found.speed_law.speed_sd == pytest.approx(0.06, rel=0.1)
    assert found.sd == pytest.approx(0.02, rel=0.2)


@pytest.mark.parametrize("counts", [[2], [1, 1, 3], [1, 1, 1, 1, 2]])
@pytest.mark.parametrize(
    ("exponent", "speed_sd", "noise_sd"),
    [(1.0, 0.08, 0.0), (1.0, 0.08, 0.01), (0.5, 0.05, 0.02), (0.0, 0.05, 0.0), (1.0, 0.0, 0.03)],
)
def test_intervals_at_the_usual_speed_hold_the_truth(counts, exponent, speed_sd, noise_sd):
    generator = np.random.default_rng(6)

    def held():
        subjects = drawn(generator, 120, counts, 0.02, 6)
        return coverage(at_speeds(generator, subjects, exponent, speed_sd, noise_sd))

    assert 0.91 <= np.mean([held() for _ in range(16)]) <= 0.985


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("several", "alone", "least"), [(6, 34, 0.87), (10, 100, 0.91)])
def test_a_few_pairs_hardly_tell_how_times_follow_the_speed(several, alone, least, exponent):
    generator = np.random.default_rng(8)

    def held():
        subjects = [drawn(generator, n, [k], 0.02, 6) for n, k in ((several, 2), (alone, 1))]
        subjects = [each for part in subjects for each in part]
        return coverage(at_speeds(generator, subjects, exponent, 0.05))

    assert least <= np.mean([held() for _ in range(40)]) <= 0.98


@pytest.mark.parametrize("unknown", [0.2, 0.5, 0.8, 1.0])
def test_an_execution_of_unknown_speed_is_as_uncertain_as_the_speed(unknown):
    generator = np.random.default_rng(9)

    def held():
        subjects = at_speeds(generator, drawn(generator, 150, [1, 2], 0.02, 6), 1.0, 0.05)
        for number, each in enumerate(subjects):
            if generator.uniform() < unknown:
                subjects[number] = replace(each, speeds=[None] * len(each.values))
        scatter = scatter_of(subjects)
        estimates = [(combined(each, scatter), None in each.speeds) for each in subjects]
        return [each.low <= 1 <= each.high for each, lacks in estimates if lacks]

    assert 0.93 <= np.mean([each for _ in range(10) for each in held()]) <= 0.985


@pytest.mark.parametrize("factor", [1.5, 3.0, 100.0])
def test_one_mistaken_speed_hardly_matters(factor):
    generator = np.random.default_rng(10)
    subjects = at_speeds(generator, drawn(generator, 60, [3], 0.01, 6), 0.9, 0.02)
    wrong = replace(subjects[0], speeds=[subjects[0].speeds[0] / factor, *subjects[0].speeds[1:]])
    right, found = (scatter_of([first, *subjects[1:]]).speed_law for first in (subjects[0], wrong))
    assert found.exponent == pytest.approx(right.exponent, abs=0.1)
    assert found.speed_sd < 0.1


def test_executions_at_one_unusual_speed_share_the_error_of_the_exponent():
    scatter = Scatter(0.005, 100.0, speed_law=SpeedLaw(3000.0, 0.05, 0.5, 0.5))
    halves = [
        combined(Executions([1e-4] * n, [0.001] * n, [2400.0] * n), scatter).relative_half_width
        for n in (1, 16)
    ]
    assert halves[1] == pytest.approx(halves[0], rel=0.05)
    usual = combined(Executions([1e-4] * 16, [0.001] * 16, [3000.0] * 16), scatter)
    assert usual.relative_half_width < halves[1] / 20


def test_a_known_speed_makes_intervals_narrower():
    generator = np.random.default_rng(7)
    known = at_speeds(generator, drawn(generator, 200, [1, 2], 0.02, 6), 1.0, 0.08, 0.01)
    unknown = [Executions(each.values, each.batch_errors) for each in known]
    widths = []
    for subjects in (known, unknown):
        scatter = scatter_of(subjects)
        halves = [combined(each, scatter).relative_half_width for each in subjects]
        widths.append(np.median(halves))
    assert widths[0] < widths[1] / 2


def test_a_single_execution_on_a_slow_core_counts_at_the_usual_speed():
    scatter = Scatter(0.02, 6.0, speed_law=SpeedLaw(1.0, 0.05, 1.0, 0.0))
    assert combined(Executions([1.1], [0.003], [1 / 1.1]), scatter).value == pytest.approx(1)
    assert combined(Executions([1.1], [0.003], [None]), scatter).value == pytest.approx(1.1)
    assert combined(Executions([1.1], [0.003]), scatter).value == 1.1
    twice = Executions([1.1, 0.9], [0.003] * 2, [1 / 1.1, 1 / 0.9])
    assert all(near_the_middle(twice, replace(scatter, sd=1e-4)))
    assert combined(twice, scatter).value == pytest.approx(1)


def test_what_always_runs_on_a_slower_core_counts_at_the_speed_that_it_runs_at():
    speeds = [0.96, 0.96 / 1.1]
    law = SpeedLaw(1.0, 0.05, 1.0, 0.0).beside(speeds[:1] * 20, SpeedsBeside(1.0, 0.015, 0.005))
    assert law.usual_speed == pytest.approx(0.96, rel=0.001)
    twice = Executions([1.0, 1.1], [0.003] * 2, speeds)
    found = combined(twice, Scatter(0.02, 6, speed_law=law))
    assert found.value == pytest.approx(1, abs=0.001)
    unsure = replace(law, usual_speed_error=0.02)
    wide = combined(twice, Scatter(0.02, 6, speed_law=unsure))
    assert found.relative_half_width < 0.8 * wide.relative_half_width


def test_the_speed_beside_a_subject_is_its_own_in_so_far_as_its_executions_tell():
    law = SpeedLaw(1.0, 0.05, 1.0, 0.0)
    beside = [
        law.beside([0.94] * count, SpeedsBeside(0.96, 0.015, 0.02)) for count in (0, 1, 4, 100)
    ]
    assert [each.usual_speed for each in beside] == sorted(
        (each.usual_speed for each in beside), reverse=True
    )
    assert beside[0].usual_speed == 0.96
    assert beside[-1].usual_speed == pytest.approx(0.94, rel=0.001)
    errors = [each.usual_speed_error for each in beside]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == 0.015
    assert errors[-1] == pytest.approx(0.002, rel=0.02)


def test_how_much_speeds_beside_a_subject_vary_is_that_of_many_or_of_all_work():
    generator = np.random.default_rng(5)
    speeds = [own * np.exp(generator.normal(0, 0.04, 4)) for own in generator.uniform(1, 2, 300)]
    assert speeds_beside([each.tolist() for each in speeds], 0.3).sd == pytest.approx(0.04, rel=0.1)
    assert speeds_beside([[3.0], [2.0], []], 0.03).sd == 0.03
    assert speeds_beside([[]], 0.03) is None


def test_a_speed_that_no_core_has_is_ignored():
    found = speeds_beside([*[[1900.0, 1910.0]] * 19, [1900.0, 19000.0]], 0.02)
    assert found.sd < 0.02
    law = SpeedLaw(2000.0, 0.02, 2.0, 0.1)
    assert law.beside([19000.0], found) == law.beside([], found)
    # Of two that cannot both be right, neither is known to be.
    assert speeds_beside([[100.0], [10000.0]], 0.02) == SpeedsBeside(5050.0, 1.0, 0.02)


def test_how_far_a_subject_may_differ_is_what_many_tell():
    generator = np.random.default_rng(6)
    apart = [[speed] * 4 for speed in np.exp(generator.normal(0, 0.05, 40)).tolist()]
    assert speeds_beside(apart, 0.01).error == pytest.approx(0.05, rel=0.25)
    assert 0.005 < speeds_beside([[1.0] * 4] * 40, 0.01).error < 0.01
    assert 0.01 < speeds_beside([[1.0] * 4] * 3, 0.01).error < 0.025
    assert speeds_beside([[1.0] * 4], 0.01).error == 1


@pytest.mark.parametrize("models", [1, 3, 20])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_intervals_at_the_speed_of_other_work_hold_what_that_work_takes(models, exponent):
    """The truth of each model is 1 at the speed of operators, and the speed that is found beside it
    is lower by 4 %, and by a share of its own."""
    generator = np.random.default_rng(11)
    held = []
    for _ in range(300):
        faster = generator.normal(0, 0.05, (models, 2))
        noise = np.exp(generator.normal(0, 0.02, faster.shape))
        values = np.exp(-exponent * faster) * noise
        speeds = 0.96 * np.exp(faster + generator.normal(0, 0.015, (models, 1)))
        every = speeds.tolist()
        law = SpeedLaw(1.0, 0.05, exponent, 0.05)
        law = law.beside(every[0], speeds_beside(every, law.speed_sd))
        scatter = Scatter(0.02, 20, speed_law=law)
        first = combined(Executions(values[0].tolist(), [0.001] * 2, speeds[0].tolist()), scatter)
        held.append(first.low <= 1 <= first.high)
    assert 0.92 <= np.mean(held) <= 0.995


def test_executions_without_speeds_have_no_usual_one():
    assert scatter_of(drawn(np.random.default_rng(3), 20, [2], 0.02, 5)).speed_law is None


def test_two_executions_that_disagree_have_an_interval_with_both():
    estimate = combined(Executions([26.9, 81.8], [0.003, 0.003]), Scatter(0.02, 6))
    assert estimate.low <= 26.9 < 81.8 <= estimate.high


def test_a_third_execution_tells_which_of_them_is_the_outlier():
    executions = Executions([81.8, 26.9, 27.2], [0.003] * 3)
    assert outlying(executions, Scatter(0.02, 6)) == [True, False, False]
    estimate = combined(executions, Scatter(0.02, 6))
    assert 26 < estimate.low < estimate.value < estimate.high < 28.1


def test_where_no_majority_agrees_there_is_no_outlier():
    executions = Executions([1, 2, 4], [0.003] * 3)
    assert outlying(executions, Scatter(0.02, 6)) == [False] * 3
    estimate = combined(executions, Scatter(0.02, 6))
    assert estimate.low <= 1 < 4 <= estimate.high


@given(
    values=st.lists(st.floats(0.5, 2), min_size=1, max_size=6),
    sd=st.floats(0.005, 0.1),
    degrees=st.floats(3, 100),
)
def test_a_scatter_that_changes_a_little_changes_the_mean_a_little(values, sd, degrees):
    executions = Executions(values, [0.003] * len(values))
    before, after = (combined(executions, Scatter(each, degrees)) for each in (sd, 1.01 * sd))
    assert (
        abs(math.log(after.value / before.value))
        < 0.05 * math.log(max(values) / min(values)) + 1e-9
    )


@pytest.mark.parametrize("number", [4, 6])
@given(apart=st.floats(0.01, 1), noise=st.lists(st.floats(-0.01, 0.01), min_size=6, max_size=6))
def test_two_groups_of_one_size_count_alike(number, apart, noise):
    logs = [each + apart * (place % 2) for place, each in enumerate(noise[:number])]
    executions = Executions(list(map(math.exp, logs)), [0.003] * number)
    estimate = combined(executions, Scatter(0.02, 6))
    assert abs(math.log(estimate.value) - np.mean(logs)) < 0.01 + 0.1 * apart
    variance, _ = variance_of_one(executions, Scatter(0.02, 6))
    assert variance >= (number - 1) / (number + 5) * np.var(logs, ddof=1) * 0.6


@given(values=st.lists(st.floats(0.95, 1.05), min_size=1, max_size=6))
def test_executions_that_the_scatter_explains_count_fully(values):
    assert weights(Executions(values, [0.003] * len(values)), Scatter(0.02, 6)) == [1] * len(values)


@pytest.mark.parametrize("far", [0.18, 0.5, 2.0])
def test_one_that_is_far_from_two_others_counts_little(far):
    executions = Executions([1.0, 1.001, math.exp(far)], [0.003] * 3)
    assert weights(executions, Scatter(0.02, 6))[2] < 0.05
    estimate = combined(executions, Scatter(0.02, 6))
    two = combined(Executions([1.0, 1.001], [0.003] * 2), Scatter(0.02, 6))
    assert abs(estimate.value - 1) < 0.01
    assert estimate.relative_half_width > 0.8 * two.relative_half_width


def test_what_batches_explain_makes_no_outlier():
    values = [1.0, 1.001, 1.3]
    assert weights(Executions(values, [0.1] * 3), Scatter(0.02, 6)) == [1, 1, 1]
    assert weights(Executions(values, [0.01] * 3), Scatter(0.02, 6))[2] < 0.1


def test_executions_without_scatter_or_error_of_their_own_have_a_mean():
    estimate = combined(Executions([1.0, 1.0, 1.1, 1.1], [None] * 4), Scatter(0.0, 6))
    assert estimate.value == pytest.approx(math.sqrt(1.1))


def test_a_single_execution_has_the_scatter_of_the_others():
    estimate = combined(Executions([1.0], [0.0]), Scatter(0.02, 6))
    assert math.log(estimate.high) == pytest.approx(2.447 * 0.02, rel=1e-3)
    assert estimate.degrees_of_freedom == 6


def test_the_interval_of_a_row_holds_later_runs_however_quiet_this_one_was():
    quiet = combined(Executions([1.0], [1e-4]), Scatter(1e-4, 5.0))
    row = in_any_run(quiet, None)
    assert math.log(row.high) == pytest.approx(1.96 * 0.015, rel=0.01)
    assert row.degrees_of_freedom == quiet.degrees_of_freedom
    busy = combined(Executions([1.0], [1e-4]), Scatter(0.1, 5.0))
    assert in_any_run(busy, None).high == pytest.approx(busy.high, rel=0.01)


@pytest.mark.parametrize(("exponent", "speed_sd"), [(1.0, 0.05), (0.7, 0.1), (0.0, 0.1)])
def test_the_interval_of_a_row_holds_runs_at_another_usual_speed(exponent, speed_sd):
    """Two runs, whose usual speeds differ as those of executions do."""
    generator = np.random.default_rng(11)

    def run():
        subjects = at_speeds(generator, drawn(generator, 100, [1, 2], 0.02, 6), exponent, speed_sd)
        slower = math.exp(generator.normal(0, exponent * speed_sd))
        values = [[value * slower for value in each.values] for each in subjects]
        subjects = [replace(each, values=slow) for each, slow in zip(subjects, values, strict=True)]
        scatter = scatter_of(subjects)
        return [in_any_run(combined(each, scatter), scatter.speed_law) for each in subjects]

    ratios = [ratio(*pair) for _ in range(60) for pair in zip(run(), run(), strict=True)]
    assert 0.93 <= np.mean([each.low <= 1 <= each.high for each in ratios]) <= 0.99


@given(st.floats(1e-6, 1e2), st.floats(1e-3, 0.2), st.floats(0.01, 0.2), st.floats(0, 1))
def test_at_the_speed_of_its_run_a_row_has_the_interval_without_that_speed(value, sd, speed, power):
    speed_law = SpeedLaw(3000.0, speed, power, 0.1)
    combination = combined(Executions([value], [0.001]), Scatter(sd, 5.0))
    found = at_speed_of_run(in_any_run(combination, speed_law), speed_law)
    alone = in_any_run(combination, None)
    assert (found.low, found.high) == pytest.approx((alone.low, alone.high), rel=1e-9)
    assert found.value == value
    assert found.degrees_of_freedom == combination.degrees_of_freedom


def test_without_an_interval_a_row_has_none_in_any_run():
    assert in_any_run(Estimate(1.0, None, None), None) == Estimate(1.0, None, None)


def test_without_a_known_scatter_executions_speak_for_themselves():
    estimate = combined(Executions([1.0, 1.1, 1.05], [0.001] * 3), None)
    logs = np.log([1.0, 1.1, 1.05])
    assert math.log(estimate.high / estimate.value) == pytest.approx(
        4.303 * np.std(logs, ddof=1) / math.sqrt(3), rel=1e-3
    )
    only = combined(Executions([2.0], [0.01]), None)
    assert only.high == pytest.approx(2 * math.exp(0.0196), rel=1e-4)


@given(times, st.floats(1e-3, 0.5), st.floats(3, 50))
def test_the_estimate_lies_among_the_executions_and_in_its_interval(values, sd, degrees):
    estimate = combined(Executions(values, [0.01] * len(values)), Scatter(sd, degrees))
    assert min(values) * (1 - 1e-9) <= estimate.value <= max(values) * (1 + 1e-9)
    assert 0 < estimate.low <= estimate.value <= estimate.high


@given(times)
def test_more_disagreement_is_never_more_certain(values):
    calm = Executions([values[0]] * len(values), [0.01] * len(values))
    scatter = Scatter(0.02, 6)
    assert (
        variance_of_one(calm, scatter)[0]
        <= variance_of_one(Executions(values, [0.01] * len(values)), scatter)[0]
    )


def test_the_error_of_batches_is_that_of_the_interval():
    assert batch_error(Estimate(1.0, math.exp(-0.0196), math.exp(0.0196))) == pytest.approx(
        0.01, rel=1e-3
    )
    assert batch_error(Estimate(1.0, None, None)) is None


def test_a_single_execution_without_any_interval_has_none():
    assert combined(Executions([2.0], [None]), None) == Estimate(2.0, None, None)


def test_means_of_parts_add_up_to_the_mean_of_their_sum_and_an_outlier_counts():
    parts = [[0.2, 0.3, 0.8], [0.5, 0.1, 0.1]]
    errors, scatter = [0.01] * 3, Scatter(0.02, 6.0)
    both = [sum(each) for each in zip(*parts, strict=True)]
    first, second, total = (averaged(Executions(each, errors), scatter) for each in (*parts, both))
    assert first.value + second.value == pytest.approx(total.value)
    assert first.low <= 0.2 < 0.8 <= first.high


def test_few_subjects_do_not_tell_that_executions_do_not_scatter():
    """Where batches explain what they differ by, some scatter is assumed all the same."""
    generator = np.random.default_rng(2)
    few, many = (
        [
            Executions(list(np.exp(0.01 * generator.standard_normal(2))), [0.01, 0.01])
            for _ in range(number)
        ]
        for number in (10, 2000)
    )
    assert scatter_of(few).sd > 0.002
    assert scatter_of(many).sd < 0.004
