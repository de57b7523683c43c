"""What `opcost diff` names has changed, and what has not changed it does not name."""

import json
import re
from dataclasses import astuple

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from opcost.commands import main
from opcost.databases.merging import merge
from opcost.difference.changes import changes_of
from opcost.difference.databases import compare_databases
from opcost.difference.null_distribution import NullDistribution
from opcost.difference.summary import summarise
from opcost.errors import OpcostError
from opcost.executions import Executions, Scatter, SpeedLaw, combined, in_any_run, scatter_of
from opcost.rows import records, schemas
from opcost.rows.quantities import SPEED_COLUMNS, TIME
from opcost.statistics import weighted_median
from scipy import stats

ROW = {
    "operator": "aten.relu.default",
    "target": "local",
    "status": "ok",
    "converged": True,
    "flags": [],
    "executions": None,
    TIME.executed: None,
    "time_scatter": 0.02,
    "time_degrees_of_freedom": None,
    "energy_degrees_of_freedom": None,
    **dict.fromkeys(SPEED_COLUMNS),
    "device_name": "Simulated",
    "device_uuid_hash": "a" * 16,
    "driver_version": "550",
    "protocol_version": 4,
    "conditions_json": json.dumps({"measurement": {"cache_state": "model"}}),
}


def measured(number, time_s, half_width=0.01, **changes):
    """A row of a tuple by that number, with an interval of that relative half-width."""
    return (
        ROW
        | {"tuple_id": f"{number:016x}", "description": f"relu({number})", "time_s": time_s}
        | {"time_ci_low_s": time_s * (1 - half_width), "time_ci_high_s": time_s * (1 + half_width)}
        | changes
    )


def study(seed, factors=(), common=1.0, number=60, sd=0.02, **changes):
    """Rows of a study that measured tuples of 1 to `number` ms, each off by chance.

    The first tuples have changed by `factors`, and all by `common`.
    """
    off = np.random.default_rng(seed).normal(0, sd, number)
    change = np.ones(number) * common
    change[: len(factors)] *= factors
    times = (1 + np.arange(number)) * 1e-3 * change * np.exp(off)
    return [measured(index, float(time_s), **changes) for index, time_s in enumerate(times)]


@pytest.fixture
def database(tmp_path):
    """A function that writes a database of rows, and returns its path."""

    def database(name, rows):
        path = tmp_path / f"{name}.parquet"
        records.write(path, schemas.DATABASE, rows)
        return path

    return database


@pytest.fixture
def diff(database):
    """A function that compares rows before with rows after."""

    def diff(before, after, **options):
        return compare_databases(database("before", before), database("after", after), **options)

    return diff


def names(difference):
    return {change.before["description"] for change in difference.found}


def test_a_study_repeated_has_changed_nothing(diff):
    difference = diff(study(1), study(2))
    assert not difference.changed
    assert difference.tests == 61


def test_what_is_in_both_databases_is_not_taken_for_two_measurements(diff):
    before = [row | {TIME.executed: [row["time_s"], 1.0 + row["time_s"]]} for row in study(1)]
    after = [row | {TIME.executed: [row["time_s"]]} for row in study(2)]
    assert "in common" not in summarise(diff(before, after))
    again = [*before[:3], *after[3:]]
    assert "3 of them have executions in common" in summarise(diff(before, again))
    without = [row | {TIME.executed: None} for row in before]
    assert "60 of them have executions in common" in summarise(diff(without, without))


def test_operators_that_changed_are_named_and_no_others(diff):
    difference = diff(study(1), study(2, factors=[1.4, 0.6]))
    assert names(difference) == {"relu(0)", "relu(1)"}
    assert not difference.common_found
    [slower] = [each for each in difference.found if each.before["description"] == "relu(0)"]
    assert slower.ratio.low < 1.4 < slower.ratio.high


def test_in_a_copy_five_per_cent_are_found(diff):
    before = study(1)
    after = [
        measured(index, row["time_s"] * (1.05 if index < 10 else 1))
        for index, row in enumerate(before)
    ]
    assert names(diff(before, after)) == {f"relu({index})" for index in range(10)}


@pytest.mark.parametrize("common", [1.0, 1.02, 1.2])
def test_an_interval_excludes_no_change_where_one_is_named(diff, common):
    found = diff(study(1), study(2, [1.04, 1.1, 1.2, 1.5], common))
    [quantity] = found.targets[0].quantities
    tests = [(change, change.own(found.level)) for change in quantity.changes]
    tests.append((quantity, quantity.all_operators(found.level)))
    assert len(tests) == 61
    for test, interval in tests:
        assert (test.adjusted_p <= found.level) == (not interval.low <= 1 <= interval.high)


def test_what_changed_for_all_is_one_finding(diff):
    difference = diff(study(1), study(2, common=1.3, factors=[1.5]))
    [common] = difference.common_found
    assert common.common.low < 1.3 < common.common.high
    assert names(difference) == {"relu(0)"}
    [change] = difference.found
    assert change.deviation == pytest.approx(1.5, rel=0.1)
    assert change.ratio.value == pytest.approx(1.5 * 1.3, rel=0.1)


def test_a_machine_that_is_slower_by_what_it_varies_has_not_changed(diff):
    """One study may be off as a whole by what single measurements are off."""
    assert not diff(study(1, sd=0), study(2, sd=0, common=1.02)).changed
    assert diff(study(1, sd=0), study(2, sd=0, common=1.02), spread=0.001).common_found


def test_doubtful_rows_are_judged_by_how_far_doubtful_rows_lie_apart(diff):
    def studies(seed, sd):
        doubtful = study(seed, number=30, sd=sd, flags=["drifting"])
        sound = [row | {"tuple_id": f"{99 + i:016x}"} for i, row in enumerate(study(seed + 10))]
        return doubtful + sound

    difference = diff(studies(1, 0.2), studies(2, 0.2))
    assert not difference.found
    [time] = difference.targets[0].quantities
    assert time.nulls[True].sd > 4 * time.nulls[False].sd
    assert sum(change.doubtful for change in time.changes) == 30


def test_few_operators_are_judged_by_what_their_studies_know_of_the_scatter(diff):
    before, after = study(1, number=3, sd=0), study(2, number=3, sd=0, factors=[1.5, 1.01])
    assert names(diff(before, after)) == {"relu(0)"}
    unknown = [row | {"time_scatter": None} for row in before]
    difference = diff(unknown, after)
    assert difference.tests == 0
    assert not difference.changed
    assert names(diff(unknown, after, spread=0.02)) == {"relu(0)"}


def test_measurements_without_an_interval_are_not_tested(diff):
    bare = {"time_ci_low_s": None, "time_ci_high_s": None}
    after = [row | bare if i == 0 else row for i, row in enumerate(study(2, factors=[3.0]))]
    difference = diff(study(1), after)
    assert not difference.found
    assert difference.tests == 60
    [row] = [row for row in difference.to_table().to_pylist() if row["tuple_id"] == "0" * 16]
    assert row["time_ratio"] == pytest.approx(3, rel=0.1)
    assert row["time_changed"] is row["time_p"] is None


def test_energy_is_tested_like_time_where_both_have_it(diff):
    def with_energy(rows, factor=1.0):
        return [
            row
            | {
                f"energy{limit}_j": row[f"time{limit}_s"] * 100
                for limit in ("", "_ci_low", "_ci_high")
            }
            if number
            else row
            | {
                f"energy{limit}_j": row[f"time{limit}_s"] * 100 * factor
                for limit in ("", "_ci_low", "_ci_high")
            }
            for number, row in enumerate(rows)
        ]

    difference = diff(with_energy(study(1)), with_energy(study(2), factor=2.0))
    [found] = difference.found
    assert found.before["description"] == "relu(0)"
    [row] = [row for row in difference.to_table().to_pylist() if row["energy_changed"]]
    assert (row["time_changed"], row["energy_after_j"] > 0.1) == (False, True)
    assert difference.tests == 122


def test_what_fails_now_is_a_change_and_what_is_in_one_only_is_listed(diff):
    failed = {"status": "error", "error": "no kernel", "time_s": None, "converged": None}
    after = study(2)
    after[3] |= failed
    difference = diff(study(1, number=61), [*after, measured(99, 1.0)])
    assert difference.changed
    assert not difference.found
    [target] = difference.targets
    [(before, after)] = difference.failures
    assert (before["status"], after["status"]) == ("ok", "error")
    assert [row["description"] for row in target.pairing.only_before] == ["relu(60)"]
    assert [row["description"] for row in target.pairing.only_after] == ["relu(99)"]
    assert difference.to_table().num_rows == 62


def test_what_both_were_measured_on_is_said_first(diff):
    difference = diff(study(1), study(2, driver_version="560", quiet_sentinel_time_s=1e-4))
    [target] = difference.targets
    [driver] = target.pairing.conditions
    assert driver == ("driver_version", "550", "560", True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol_version": 3}, "protocol_version is 4 before, 3 after"),
        ({"conditions_json": '{"measurement": {"cache_state": "cold"}}'}, 'cache_state is "model"'),
    ],
)
def test_numbers_of_another_meaning_are_not_compared(diff, changes, message):
    with pytest.raises(OpcostError, match=message):
        diff(study(1), study(2, **changes))
    assert not diff(study(1), study(2, **changes), anyway=True).changed


def test_targets_of_different_names_are_paired_by_hand(diff):
    after = study(2, target="h200")
    with pytest.raises(OpcostError, match="none is in both"):
        diff(study(1), after)
    with pytest.raises(OpcostError, match="Did you mean 'h200'"):
        diff(study(1), after, targets={"local": "h20"})
    assert diff(study(1), after, targets={"local": "h200"}).tests == 61


def test_of_a_merged_database_the_conditions_are_chosen(database, tmp_path):
    paths = [database("old", study(1)), database("new", study(2, driver_version="560"))]
    merged = tmp_path / "merged.parquet"
    merge(paths, merged)
    with pytest.raises(OpcostError, match="choose one with --before-conditions") as caught:
        compare_databases(merged, paths[0])
    ids = {
        row["driver_version"]: row["conditions_id"]
        for row in records.read(merged, schemas.MERGED).to_pylist()
    }
    assert all(each in str(caught.value) for each in ids.values())
    difference = compare_databases(
        merged, merged, before_conditions=ids["550"], after_conditions=ids["560"]
    )
    assert [each.name for each in difference.targets[0].pairing.conditions] == ["driver_version"]
    with pytest.raises(OpcostError, match="has no conditions_id 'x'"):
        compare_databases(merged, merged, before_conditions="x", after_conditions="x")


LAWS = {
    "normal": lambda generator, size: generator.normal(size=size),
    "Student's t, 5 degrees of freedom": lambda generator, size: generator.standard_t(5, size),
    "none": lambda generator, size: np.zeros(size),
}


def test_a_database_that_has_a_tuple_twice_is_refused(diff):
    rows = study(1)
    with pytest.raises(OpcostError, match="has two rows of local 0000000000000000"):
        diff([*rows, rows[0]], rows)


def drawn_pairs(generator, law, sound=40, doubtful=20):
    """Pairs of rows of unchanged tuples: off by 3 % beside their errors, doubtful ones by more."""
    off = [0.03 * LAWS[law](generator, sound), 0.04 * generator.standard_t(2, doubtful)]
    errors = generator.normal(0, 0.005, (2, sound + doubtful))
    first, second = 1e-3 * np.exp(errors)
    second *= np.exp(np.concatenate(off))
    for index in range(sound + doubtful):
        flags = [] if index < sound else ["drifting"]
        yield tuple(measured(index, float(x[index]), flags=flags) for x in (first, second))


def any_named(quantity):
    return min(stats.false_discovery_control([each.p for each in quantity.changes])) <= 0.05


@pytest.mark.parametrize("law", LAWS)
def test_the_probability_of_a_false_alarm_is_at_most_the_level(law):
    generator = np.random.default_rng(1)
    studies, alarms = 250, 0
    for _ in range(studies):
        quantity = changes_of(TIME, list(drawn_pairs(generator, law)))
        alarms += any_named(quantity)
    # more often than a probability of 5 % would allow once in a thousand times
    assert alarms <= stats.binom.isf(1e-3, studies, 0.05)


def test_nor_is_it_for_a_handful_of_operators_whose_studies_know_their_scatter():
    generator = np.random.default_rng(2)
    studies, alarms = 250, 0
    for _ in range(studies):
        repeated = np.exp(0.03 * generator.standard_t(5, (2, 10)))
        subjects = ([Executions([1.0, each], [0.0, 0.0]) for each in study] for study in repeated)
        first, second = (scatter_of(each).sd for each in subjects)
        pairs = [
            (before | {"time_scatter": first}, after | {"time_scatter": second})
            for before, after in drawn_pairs(generator, "normal", sound=3, doubtful=0)
        ]
        quantity = changes_of(TIME, pairs)
        alarms += any_named(quantity)
    assert alarms <= stats.binom.isf(1e-3, studies, 0.05)


def test_without_scatter_a_p_value_is_the_normal_one():
    z = np.array([0.0, 1.0, 1.959964, 3.0, 6.0])
    p = NullDistribution(0.0, 3.0).p_values(0.01 * z, np.full(5, 0.01), np.full(5, np.inf))
    assert p == pytest.approx(2 * stats.norm.sf(z), rel=1e-6)


@pytest.mark.parametrize("degrees", [6.0, np.inf])
@pytest.mark.parametrize("tail", [2.0, 5.0])
def test_without_error_a_p_value_is_students(tail, degrees):
    scale = 0.02 * stats.norm.ppf(0.75) / stats.t.ppf(0.75, tail)
    ratios = np.array([0.01, 0.05, 0.3])
    p = NullDistribution(0.02, tail).p_values(ratios, np.full(3, 1e-9), np.full(3, degrees))
    assert p == pytest.approx(2 * stats.t.sf(ratios / scale, tail), rel=1e-4)


@pytest.mark.parametrize("tail", [2.0, 5.0])
def test_without_scatter_a_p_value_of_combined_executions_is_students(tail):
    ratios, degrees = np.array([0.01, 0.05, 0.3]), np.array([3.0, 6.0, 20.0])
    scales = 0.02 * np.sqrt((degrees - 2) / degrees)
    p = NullDistribution(0.0, tail).p_values(ratios, np.full(3, 0.02), degrees)
    assert p == pytest.approx(2 * stats.t.sf(ratios / scales, degrees), rel=1e-6)


@given(
    st.floats(1e-6, 0.1),
    st.sampled_from([2.5, 6.0, np.inf]),
    st.floats(0, 0.1),
    st.sampled_from([2.0, 5.0]),
)
def test_at_the_half_width_the_p_value_is_the_level(error, degrees, sd, tail):
    errors, null = (np.array([error]), np.array([degrees])), NullDistribution(sd, tail)
    for level in (0.05, 1e-5):
        found = null.p_values(null.half_widths(*errors, level), *errors)
        assert found == pytest.approx(level, rel=1e-3)


@pytest.mark.parametrize("number", [4, 60])
@pytest.mark.parametrize("scatter", [Scatter(0.02, 4.0), Scatter(0.1, 10.0)])
def test_nor_is_it_for_rows_that_combine_executions(scatter, number):
    generator = np.random.default_rng(3)
    studies, alarms = 150, 0
    for _ in range(studies):
        n = scatter.degrees_of_freedom
        sds = scatter.sd * np.sqrt(n / generator.chisquare(n, number))
        pairs = list(zip(*(combined_study(generator, sds, scatter) for _ in range(2)), strict=True))
        quantity = changes_of(TIME, pairs)
        alarms += any_named(quantity)
    assert alarms <= stats.binom.isf(1e-3, studies, 0.05)


def run_at(usual_speed, law, times_s, scatter):
    """Rows of a run, of single executions, whose usual speed is that multiple of another run's."""
    for number, time_s in enumerate(times_s):
        slow_s = time_s / usual_speed**law.exponent
        combination = combined(Executions([float(slow_s)], [0.001]), scatter)
        more = {"executions": 1, TIME.degrees: combination.degrees_of_freedom}
        more |= dict(zip(SPEED_COLUMNS, astuple(law), strict=False)) | {TIME.scatter: scatter.sd}
        yield measured(number, slow_s) | TIME.columns(in_any_run(combination, law)) | more


@pytest.mark.parametrize("number", [8, 40])
def test_another_usual_speed_of_the_core_is_no_change(number):
    generator, scatter = np.random.default_rng(5), Scatter(0.027, 20.0)
    law = SpeedLaw(3000.0, 0.06, 0.95, 0.05)
    studies, alarms = 150, 0
    for _ in range(studies):
        runs = (
            run_at(
                np.exp(generator.normal(0, law.speed_sd)),
                law,
                1e-3 * np.exp(scatter.sd * generator.standard_t(20, number)),
                scatter,
            )
            for _ in range(2)
        )
        alarms += any_named(changes_of(TIME, list(zip(*runs, strict=True))))
    assert alarms <= stats.binom.isf(1e-3, studies, 0.05)


@pytest.mark.parametrize("speed_sd", [0.0, 0.1])
def test_a_usual_speed_that_all_operators_share_hides_no_change_of_one(speed_sd):
    law, times_s = SpeedLaw(3000.0, speed_sd, 1.0, 0.05), np.full(40, 1e-3)
    slower = times_s * np.where(np.arange(40) == 7, 1.15, 1.0)
    runs = (run_at(1.0, law, each, Scatter(0.004, 20.0)) for each in (times_s, slower))
    changes = changes_of(TIME, list(zip(*runs, strict=True))).changes
    assert [number for number, each in enumerate(changes) if each.p < 1e-3] == [7]


def combined_study(generator, sds, scatter):
    """Rows that combine one to three executions, of which each tuple has a scatter of its own."""
    for number, sd in enumerate(sds):
        times_s = 1e-3 * np.exp(generator.normal(0, sd, 1 + number % 3))
        estimate = combined(Executions(times_s.tolist(), [0.001] * len(times_s)), scatter)
        columns = TIME.columns(estimate) | {TIME.degrees: estimate.degrees_of_freedom}
        more = {"executions": len(times_s), "time_scatter": scatter.sd}
        yield measured(number, estimate.value) | columns | more


def test_of_the_named_changes_a_share_of_at_most_the_level_is_none(diff):
    wrong, right, studies = [], 0, 60
    for seed in range(studies):
        after = study(2 * seed, factors=[1.35] * 12)
        found = diff(study(2 * seed + 1), after).found
        numbers = [int(each.before["tuple_id"], 16) for each in found]
        wrong.append(sum(number >= 12 for number in numbers) / max(1, len(numbers)))
        right += sum(number < 12 for number in numbers)
    assert np.mean(wrong) <= 0.05 + 3 * np.std(wrong) / studies**0.5
    assert right > studies  # it finds some


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=50))
def test_the_median_of_equal_weights_is_the_median(values):
    estimate = weighted_median(values, [2.0] * len(values))
    assert estimate.value == pytest.approx(float(np.median(values)))


def test_intervals_of_the_weighted_median_hold_the_truth():
    generator = np.random.default_rng(5)
    held = []
    for _ in range(2000):
        sd = generator.uniform(0.1, 2.0, 40)
        estimate = weighted_median(generator.normal(3, sd).tolist(), (1 / sd).tolist())
        held.append(estimate.low <= 3 <= estimate.high)
    assert np.mean(held) > 0.94


def run(*arguments):
    return CliRunner().invoke(main, ["diff", *map(str, arguments)])


def test_where_nothing_changed_the_last_line_tells_what_would_hardly_be_found(database):
    last = run(database("before", study(1)), database("same", study(2))).stdout.splitlines()[-1]
    found = re.fullmatch(
        r"A change of one operator below about \+(.*)% in time would hardly be found\.", last
    )
    assert 1 < float(found[1]) < 50
    changed = run(database("one", study(1)), database("other", study(2, factors=[1.5])))
    assert changed.stdout.splitlines()[-1].startswith("Changed: 1 single operators")


def test_the_command_exits_with_3_if_something_changed(database, tmp_path):
    before, same = database("before", study(1)), database("same", study(2))
    after = database("after", study(2, factors=[1.5], driver_version="560"))
    quiet = run(before, same)
    assert quiet.exit_code == 0, quiet.output
    assert "0 of 60 operators" in quiet.stdout
    assert "nothing significant" in quiet.stdout
    changed = run(before, after, "--parquet", tmp_path / "diff.parquet", "--json")
    assert changed.exit_code == 3
    lines = [json.loads(line) for line in changed.stdout.splitlines()]
    assert [line["description"] for line in lines if line["time_changed"]] == ["relu(0)"]
    table = pq.read_table(tmp_path / "diff.parquet")
    assert table.schema.names == schemas.DIFFERENCE.names
    for text in ("driver_version  550", "relu(0)", "1 of 60 operators", "false discovery rate"):
        assert text in run(before, after).stdout


UNKNOWN = {"time_scatter": None}


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (study(1), [measured(99, 1e-3)], "no operator tuple with a result in both"),
        (study(1, number=3, **UNKNOWN), study(2, number=3, **UNKNOWN), "no test of time"),
        (study(1, sd=0.8), study(2, sd=0.8), "only a change of an operator by more than 100%"),
    ],
    ids=["nothing in common", "no test", "too noisy"],
)
def test_where_nothing_could_be_found_the_answer_is_open_and_the_command_exits_with_4(
    database, before, after, reason
):
    paths = database("before", before), database("after", after)
    answer = run(*paths)
    assert answer.exit_code == 4
    assert answer.stdout.splitlines()[-1].startswith("Cannot tell: ")
    assert reason in answer.stdout
    assert "nothing significant" not in answer.stdout
    as_json = run(*paths, "--json")
    assert (as_json.exit_code, reason in as_json.stderr) == (4, True)


def test_a_target_of_which_nothing_is_told_leaves_the_answer_open_beside_another(database):
    def both(seed, number):
        return [*study(seed), *study(seed + 2, number=number, target="b", **UNKNOWN)]

    answer = run(database("before", both(1, 3)), database("after", both(2, 3)))
    assert answer.exit_code == 4
    assert answer.stdout.endswith("Cannot tell: no test of time, as said above (target b).\n")
    changed = both(2, 3)
    changed[0] |= measured(0, 2e-3)
    assert run(database("before", both(1, 3)), database("after", changed)).exit_code == 3


def test_what_cannot_be_compared_exits_with_1(database):
    before, after = database("a", study(1)), database("b", study(1, protocol_version=3))
    refused = run(before, after)
    assert refused.exit_code == 1
    assert "--anyway" in refused.stderr
    assert run(before, after, "--anyway").exit_code == 0
