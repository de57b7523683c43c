"""What `opcost diff` names has changed, and what has not changed it does not name."""

import json
import math
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from opcost.commands import main
from opcost.databases.merging import merge
from opcost.difference.databases import adjust, changes_of, compare_databases
from opcost.difference.pairing import Pairing
from opcost.difference.summary import summarise
from opcost.errors import OpcostError
from opcost.rows import records, schemas
from opcost.rows.quantities import ENERGY, POWER, TIME
from scipy import stats

ROW = {
    **dict.fromkeys(schemas.DATABASE.names),
    "operator": "aten.relu.default",
    "target": "local",
    "status": "ok",
    "converged": True,
    "flags": [],
    "device_name": "Simulated",
    "device_uuid_hash": "a" * 16,
    "driver_version": "550",
    "protocol_version": 4,
    "conditions_json": json.dumps({"measurement": {"cache_state": "model"}}),
}


def measured(number, times_s, **changes):
    """A row of a tuple by that number, whose runs took these times."""
    time_s = math.exp(np.mean(np.log(times_s)))
    runs = {TIME.runs: [*times_s], TIME.run_errors: [0.001] * len(times_s), "runs": len(times_s)}
    interval = {TIME.value: time_s, TIME.low: time_s * 0.95, TIME.high: time_s * 1.05}
    name = {"tuple_id": f"{number:016x}", "description": f"relu({number})"}
    return ROW | name | runs | interval | changes


def study(seed, factors=(), common=1.0, number=60, sd=0.02, runs=1, **changes):
    """Rows of a study that measured tuples of 1 to `number` ms, each run off by chance.

    The first tuples have changed by `factors`, and all by `common`.
    """
    off = np.random.default_rng(seed).normal(0, sd, (number, runs))
    change = np.full(number, common)
    change[: len(factors)] *= factors
    times = (1 + np.arange(number))[:, None] * 1e-3 * change[:, None] * np.exp(off)
    return [measured(index, each.tolist(), **changes) for index, each in enumerate(times)]


@pytest.fixture
def database(tmp_path):
    """A function that writes a database of rows, and returns its path."""

    def database(name, rows):
        records.write(tmp_path / name, schemas.DATABASE, rows)
        return tmp_path / name

    return database


@pytest.fixture
def diff(database):
    """A function that compares rows before with rows after."""

    def diff(before, after, **options):
        return compare_databases(database("before", before), database("after", after), **options)

    return diff


def names(difference):
    return {change.before["description"] for change in difference.found}


def named(*sides):
    """The changes that are significant between rows of one target, before and after."""
    pairing = Pairing("a", "b", *({row["tuple_id"]: row for row in rows} for rows in sides))
    [of] = changes_of(pairing)
    tests = [each for each in (of.common, *of.operators) if each]
    adjust(tests, 0.05)
    return [each for each in tests if each.significant]


def test_a_study_repeated_has_changed_nothing(diff):
    assert not diff(study(1), study(2)).changed


def test_rows_that_share_a_run_are_counted(diff):
    before, after = study(1, runs=2), study(2)
    assert "Runs in common" not in summarise(diff(before, after))
    again = [before[0], measured(1, before[1][TIME.runs][:1]), *after[2:]]
    assert "Runs in common: 1 of them" in summarise(diff(before, again))


def test_settings_differ_also_where_all_rows_failed(diff):
    failed = {"status": "error", "error": "no meter", "time_s": None, TIME.runs: None}
    other = '{"measurement": {"cache_state": "cold"}}'
    with pytest.raises(OpcostError, match=r"not comparable: .*cache_state"):
        diff(study(1), [row | failed | {"conditions_json": other} for row in study(2)])


def test_rows_that_are_the_same_measurement_say_nothing_of_a_change(diff):
    before, after = study(1), study(2)
    text = summarise(diff(before, [*before[:20], *after[20:]]))
    assert "40 operator tuples with a result in both" in text
    assert "The same measurement in both: 20 further operator tuples" in text
    without = [row | {TIME.runs: None} for row in before]
    assert diff(without, without).undecided


def test_operators_that_changed_are_named_and_no_others(diff):
    difference = diff(study(1), study(2, factors=[1.4, 0.6]))
    assert names(difference) == {"relu(0)", "relu(1)"}
    assert not difference.common_found
    assert difference.found[0].ratio.low < 1.4 < difference.found[0].ratio.high


def test_a_change_of_all_operators_is_one_finding(diff):
    difference = diff(study(1), study(2, common=1.3, factors=[1.5]))
    [of] = difference.common_found
    assert of.common.ratio.low < 1.3 < of.common.ratio.high
    [change] = difference.found
    assert change.own(0.05).value == pytest.approx(1.5, rel=0.1)
    assert change.ratio.value == pytest.approx(1.5 * 1.3, rel=0.1)


@pytest.mark.parametrize("common", [1.0, 1.02, 1.2])
def test_an_interval_excludes_no_change_where_one_is_named(diff, common):
    difference = diff(study(1), study(2, [1.04, 1.1, 1.2, 1.5], common))
    for test in difference.tests:
        interval = test.own(difference.p_level)
        assert test.significant == (not interval.low <= 1 <= interval.high)
        assert test.significant == (test.adjusted_p <= 0.05)


def test_a_whole_study_may_be_off_by_what_one_run_is_off(diff):
    assert not diff(study(1, sd=0), study(2, sd=0, common=1.04)).changed
    assert not diff(study(1, sd=0, number=5), study(2, sd=0, number=5, common=1.04)).changed
    assert diff(study(1, sd=0), study(2, sd=0, common=1.2)).common_found


def test_more_runs_find_smaller_changes(diff):
    assert not diff(study(1), study(2, factors=[1.1])).found
    assert names(diff(study(1, runs=5), study(2, factors=[1.1], runs=5))) == {"relu(0)"}
    assert not diff(study(1, runs=5, sd=0.1), study(2, factors=[1.1], runs=5, sd=0.1)).found


def test_few_operators_have_no_common_change(diff):
    difference = diff(study(1, number=3), study(2, number=3, factors=[1.5]))
    [of] = difference.quantities
    assert of.common is None
    assert names(difference) == {"relu(0)"}
    assert "Fewer than 10 operators" in summarise(difference)


def unequal(generator, number, runs, factors=()):
    """Two studies of operators that vary unequally, by about 2 %, and together."""
    sds = 0.02 * np.sqrt(6 / generator.chisquare(6, number))[:, None]
    for change in ((), factors):
        off = generator.normal(0, 0.02) + sds * generator.normal(size=(number, runs))
        off[: len(change)] += np.log(change)[:, None] if len(change) else 0.0
        yield [measured(index, each.tolist()) for index, each in enumerate(1e-3 * np.exp(off))]


@pytest.mark.parametrize(("number", "runs"), [(5, 1), (60, 3)])
def test_the_probability_of_a_false_alarm_is_at_most_the_level(number, runs):
    generator, draws = np.random.default_rng(1), 60
    alarms = sum(bool(named(*unequal(generator, number, runs))) for _ in range(draws))
    # more often than a probability of 5 % would allow once in a thousand times
    assert alarms <= stats.binom.isf(1e-3, draws, 0.05)


def test_of_the_named_changes_a_share_of_at_most_the_level_is_none():
    generator = np.random.default_rng(1)
    found = [named(*unequal(generator, 60, 1, [1.3] * 10)) for _ in range(20)]
    numbers = [[int(each.before["tuple_id"], 16) for each in of if each.before] for of in found]
    false = [sum(each >= 10 for each in of) / max(1, len(of)) for of in numbers]
    assert np.mean(false) <= 0.05 + 3 * np.std(false) / math.sqrt(20)
    assert sum(map(len, numbers)) > 0.8 * 200


def with_energy(rows, factor=1.0):
    """The rows with a power of 100 W, that of the first multiplied."""
    for index, row in enumerate(rows):
        power = 100.0 if index else 100.0 * factor
        energy = {name: row[of] * power for name, of in zip(ENERGY.names, TIME.names, strict=True)}
        limits = dict(zip(POWER.names, (power, 0.99 * power, 1.01 * power), strict=True))
        yield row | energy | limits | {POWER.runs: [power], POWER.run_errors: [0.005]}


def test_energy_is_tested_like_time_where_both_have_it(diff):
    difference = diff([*with_energy(study(1))], [*with_energy(study(2), factor=2.0)])
    assert names(difference) == {"relu(0)"}
    [row] = [row for row in difference.to_table().to_pylist() if row["energy_changed"]]
    assert (row["time_changed"], row["energy_after_j"] > 0.1) == (False, True)
    time, energy = difference.quantities
    assert energy.detectable(0.001) > time.detectable(0.001)


def test_a_failure_is_a_change_and_rows_of_one_database_are_counted(diff):
    failed = {"status": "error", "error": "no kernel", "time_s": None, "converged": None}
    after = study(2)
    after[3] |= failed | {TIME.runs: None}
    difference = diff(study(1, number=61), [*after, measured(99, [1.0])])
    assert difference.changed
    [(old, new)] = difference.failures
    assert (old["status"], new["status"]) == ("ok", "error")
    text = summarise(difference)
    for expected in ("relu(3): ok -> error (no kernel)", "Only before: 1", "Only after: 1"):
        assert expected in text
    assert difference.to_table().num_rows == 62


def test_differences_in_conditions_come_first(diff):
    difference = diff(study(1), study(2, driver_version="560", sm_clock_mhz=None))
    assert difference.targets[0].conditions == [("driver_version", "550", "560", True)]
    warm = diff(study(1, temperature_end_c=50.0), study(2, temperature_end_c=60.0))
    assert warm.targets[0].conditions == [("temperature_end_c", "50", "60 (+20.0%)", True)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol_version": 3}, "protocol_version is 4 before, 3 after"),
        ({"conditions_json": '{"measurement": {"cache_state": "cold"}}'}, 'cache_state is "model"'),
    ],
)
def test_measurements_of_another_meaning_are_not_compared(diff, changes, message):
    with pytest.raises(OpcostError, match=message):
        diff(study(1), study(2, **changes))
    assert not diff(study(1), study(2, **changes), anyway=True).changed


def test_targets_of_different_names_are_paired_by_option(diff):
    after = study(2, target="h200")
    with pytest.raises(OpcostError, match="none is in both"):
        diff(study(1), after)
    with pytest.raises(OpcostError, match="Did you mean 'h200'"):
        diff(study(1), after, targets={"local": "h20"})
    assert diff(study(1), after, targets={"local": "h200"}).tests


def test_conditions_of_a_merged_database_are_chosen(database, tmp_path):
    paths = [database("old", study(1)), database("new", study(2, driver_version="560"))]
    merged = tmp_path / "merged.parquet"
    merge(paths, merged)
    with pytest.raises(OpcostError, match="choose one with --before-conditions") as caught:
        compare_databases(merged, paths[0])
    rows = records.read(merged, schemas.MERGED).to_pylist()
    ids = {row["driver_version"]: row["conditions_id"] for row in rows}
    assert all(each in str(caught.value) for each in ids.values())
    difference = compare_databases(
        merged, merged, before_conditions=ids["550"], after_conditions=ids["560"]
    )
    assert [each.name for each in difference.targets[0].conditions] == ["driver_version"]
    with pytest.raises(OpcostError, match="has no conditions_id 'x'"):
        compare_databases(merged, merged, before_conditions="x", after_conditions="x")


def run(*arguments):
    return CliRunner().invoke(main, ["diff", *map(str, arguments)])


def test_the_command_exits_with_3_if_something_changed(database, tmp_path):
    before, same = database("before", study(1)), database("same", study(2))
    flagged = study(2, factors=[1.5], driver_version="560", flags=["drifting"])
    after = database("after", flagged)
    quiet = run(before, same)
    assert quiet.exit_code == 0, quiet.output
    assert "nothing significant" in quiet.stdout
    last = r"A change of one operator below about \+(.*)% in time would hardly be found\."
    assert 1 < float(re.fullmatch(last, quiet.stdout.splitlines()[-1])[1]) < 50
    changed = run(before, after, "--parquet", tmp_path / "diff.parquet", "--json")
    assert changed.exit_code == 3
    lines = [json.loads(line) for line in changed.stdout.splitlines()]
    assert [line["description"] for line in lines if line["time_changed"]] == ["relu(0)"]
    assert pq.read_table(tmp_path / "diff.parquet").schema.names == schemas.DIFFERENCE.names
    for text in ("driver_version  550", "relu(0) *", "1 of 60 operators", "false discovery rate"):
        assert text in run(before, after).stdout


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (
            study(1),
            [measured(99, [1e-3])],
            "no operator tuple was measured for each",
        ),
        (study(1, sd=0.5, runs=2), study(2, sd=0.5, runs=2), "by more than 100% would be found"),
    ],
    ids=["nothing in common", "too noisy"],
)
def test_the_command_exits_with_4_if_it_cannot_tell(database, before, after, reason):
    paths = database("before", before), database("after", after)
    answer = run(*paths)
    assert answer.exit_code == 4
    assert answer.stdout.splitlines()[-1].startswith("Cannot tell: ")
    assert reason in answer.stdout
    assert "nothing significant" not in answer.stdout
    as_json = run(*paths, "--json")
    assert (as_json.exit_code, reason in as_json.stderr) == (4, True)


def test_a_target_that_cannot_be_compared_leaves_the_answer_open(database):
    before = database("before", [*study(1), *study(3, number=3, target="b")])
    after = database("after", [*study(2), measured(99, [1e-3], target="b")])
    answer = run(before, after)
    assert (answer.exit_code, answer.stdout[-12:]) == (4, "(target b).\n")
    changed = database("changed", [*study(2, [1.5]), measured(99, [1e-3], target="b")])
    assert run(before, changed).exit_code == 3
