"""The gate of `opcost diff --fail-if` is red for what costs more than a limit, and nothing else."""

import math
import re
from xml.etree import ElementTree

import click
import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from opcost.commands import main
from opcost.difference.gate import (
    Limit,
    Value,
    Verdict,
    adjust_levels,
    changes,
    gate,
)
from opcost.errors import OpcostError
from opcost.results_folder import ANSWERS, DATABASE
from opcost.rows import records, schemas
from opcost.rows.quantities import ENERGY, TIME
from scipy import stats

from tests.documents import ROOT
from tests.test_difference import study, with_energy

LIMIT = Limit(TIME, 0.05)
ANSWER = dict.fromkeys(schemas.ANSWERS.names) | {"target": "local", "part": "model"}


@pytest.fixture
def database(tmp_path):
    """A function that writes a study: rows, and the seconds of models end to end."""

    def database(name, rows, models=None):
        folder = tmp_path / name
        records.write(folder / DATABASE.name, schemas.DATABASE, rows)
        if models is not None:
            answers = [
                answer for model, time_s in models.items() for answer in costs(model, time_s)
            ]
            records.write(folder / ANSWERS.name, schemas.ANSWERS, answers)
        return folder / DATABASE.name

    return database


def costs(model, time_s):
    """The answers of a model that takes these seconds, with an interval of 1 %, or fails."""
    limits = {} if time_s is None else {"low": time_s * 0.99, "high": time_s * 1.01}
    of = ANSWER | {"model": model, "source": "end_to_end", "quantity": TIME.value}
    yield of | {"value": time_s} | limits
    yield of | {"source": "estimate", "quantity": TIME.run_sd, "value": 0.005}


def run(*arguments):
    return CliRunner().invoke(main, ["diff", *map(str, arguments)])


def side(option, paths):
    return [each for path in paths for each in (f"--{option}", path)]


@pytest.fixture
def sides(database):
    """A function that writes studies of 60 relu before and after, which take longer by factors."""

    def sides(number=3, sd=0.002, **after):
        seeds = range(2 * number)
        paths = [database(f"study{seed}", study(seed, sd=sd, **(after if seed >= number else {})))
                 for seed in seeds]  # fmt: skip
        return paths[:number], paths[number:]

    return sides


def test_what_costs_more_than_the_limit_is_named_and_the_status_is_3(sides):
    before, after = sides(factors=[1.4])
    answer = run(
        *side("before", before), *side("after", after), "--fail-if", "time>5%", "--by", "tuple"
    )
    assert answer.exit_code == 3, answer.output
    first = answer.stdout.splitlines()[0]
    assert re.fullmatch(
        r"Worse: relu\(0\) time \+.*% \[\+.*%, \+.*%\], limit 5% \(1 of 60 tests, by tuple\)", first
    )


def test_studies_that_repeat_each_other_are_not_worse(sides):
    before, after = sides()
    answer = run(*before[:1], *after[:1], *side("before", before[1:]), *side("after", after[1:]),
                 "--fail-if", "time > 20%")  # fmt: skip
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.startswith("Not worse: relu time ")
    assert "Studies: 3 before, 3 after." in answer.stdout


def test_without_enough_studies_it_is_undecided_and_states_how_many_would_do(sides):
    before, after = sides(number=1, sd=0.02, common=1.03)
    answer = run(*before, *after, "--fail-if", "time>5%")
    assert answer.exit_code == 4, answer.output
    assert answer.stdout.startswith("Undecided: relu ")
    assert re.search(r"Further studies of each side to decide all: about \d+", answer.stdout)


def test_a_decrease_is_never_worse(sides):
    assert gate(*sides(common=0.5), [LIMIT]).verdict is Verdict.NOT_WORSE


def test_an_operator_is_the_sum_over_its_tuples(sides):
    [each] = gate(*sides(common=1.2), [LIMIT], by="operator").things
    change, low, high = each.change
    assert each.name == "relu"
    assert low < change < high
    assert change == pytest.approx(0.2, abs=0.02)


def test_more_studies_narrow_the_interval(sides):
    widths = []
    for number in (1, 2, 4):
        [each] = gate(*(of[:number] for of in sides(number=4)), [LIMIT]).things
        widths.append(each.change[2] - each.change[1])
    assert widths == sorted(widths, reverse=True)
    assert widths[2] < widths[0] / 2


def test_studies_that_differ_widen_the_interval(database):
    paths = [database(f"{common}", study(1, common=common)) for common in (1.0, 1.01, 1.1, 1.3)]
    [close], [far] = (gate(paths[:2], of, [LIMIT]).things for of in (paths[2:3], paths[2:]))
    assert far.sd > 2 * close.sd


def test_models_are_gated_where_answers_lie_beside_all_databases(database):
    before = [
        database(f"a{n}", study(n), {"net": 1.0, "other": 2.0, "gone": 1.0}) for n in range(3)
    ]
    after = [database(f"b{n}", study(9 + n), {"net": 1.2, "other": 2.0}) for n in range(3)]
    found = gate(before, after, [LIMIT])
    assert found.by == "model"
    assert {each.name: each.verdict for each in found.things} == {
        "net": Verdict.WORSE,
        "other": Verdict.NOT_WORSE,
    }
    assert list(found.left_out) == ["gone"]
    assert gate(before, [*after, database("c", study(20))], [LIMIT]).by == "operator"


def test_a_model_or_an_operator_that_fails_after_is_worse(database):
    before = database("a", study(1), {"net": 1.0, "other": 2.0})
    rows = study(2)
    rows[3] |= {"status": "error", "error": "no kernel", "time_s": None, TIME.runs: None}
    after = database("b", rows, {"net": None, "other": 2.0})
    for by, reason in (
        ("model", "net fails after: no time and no energy"),
        ("tuple", "relu(3) fails after: no kernel"),
    ):
        answer = run(before, after, "--fail-if", "time>100%", "--by", by)
        assert (answer.exit_code, answer.stdout.splitlines()[0]) == (3, f"Worse: {reason}")


def test_time_and_energy_have_limits_of_their_own(database):
    before, after = (
        [database(f"{name}{n}", [*with_energy(study(n + of, sd=0.002), factor)]) for n in range(3)]
        for name, of, factor in (("a", 0, 1.0), ("b", 9, 3.0))
    )
    found = gate(before, after, [LIMIT, Limit(ENERGY, 0.5)], by="tuple")
    worse = [
        (each.name, each.limit.quantity) for each in found.things if each.verdict is Verdict.WORSE
    ]
    assert worse == [("relu(0)", ENERGY)]


def drawn(generator, number, studies, sd=0.02):
    """Values of things that vary unequally in studies that are off as a whole."""
    sds = sd * np.sqrt(6 / generator.chisquare(6, number))[:, None]
    logs = sds * generator.normal(size=(number, 2 * studies)) + generator.normal(0, sd, 2 * studies)
    return {
        str(n): [Value(math.exp(log), sd**2, sd**2) for log in row] for n, row in enumerate(logs)
    }


@pytest.mark.parametrize(("number", "studies"), [(3, 1), (3, 3), (40, 2)])
def test_where_nothing_exceeds_the_limit_an_alarm_is_as_rare_as_the_level(number, studies):
    generator, draws, alarms = np.random.default_rng(1), 60, 0
    for _ in range(draws):
        found = [
            *changes(drawn(generator, number, studies), studies, Limit(TIME, 0.0), "local", 0.05)
        ]
        adjust_levels(found, 0.05)
        alarms += any(each.verdict is Verdict.WORSE for each in found)
    # more often than a probability of 5 % would allow once in a thousand times
    assert alarms <= stats.binom.isf(1e-3, draws, 0.05)


def test_the_verdict_is_where_the_interval_lies():
    generator = np.random.default_rng(2)
    found = [*changes(drawn(generator, 200, 2), 2, Limit(TIME, 0.0), "local", 0.3)]
    adjust_levels(found, 0.3)
    verdicts = {each.verdict for each in found}
    assert len(verdicts) > 1
    for each in found:
        _, low, high = each.change
        expected = (
            Verdict.WORSE if low > 0 else Verdict.NOT_WORSE if high < 0 else Verdict.UNDECIDED
        )
        assert each.verdict is expected


def test_as_many_further_studies_as_stated_decide_if_the_change_stays():
    values = {"net": [Value(value, 0.02**2, 0.02**2) for value in (1.0, 1.12)]}
    [each] = changes(values, 1, LIMIT, "local", 0.05)
    assert each.verdict is Verdict.UNDECIDED
    number = 1 + each.further
    [later] = changes({"net": [*values["net"][:1] * number, *values["net"][1:] * number]}, number,
                      LIMIT, "local", 0.05)  # fmt: skip
    assert later.verdict is Verdict.WORSE


def test_junit_has_a_case_for_each_thing_with_the_interval_in_its_message(sides, tmp_path):
    before, after = sides(factors=[1.4])
    path = tmp_path / "gate.xml"
    run(
        *side("before", before),
        *side("after", after),
        "--fail-if",
        "time>5%",
        "--by",
        "tuple",
        "--junit",
        path,
    )
    suite = ElementTree.parse(path).getroot().find("testsuite")
    cases = suite.findall("testcase")
    assert (len(cases), suite.get("tests"), suite.get("failures")) == (60, "60", "1")
    assert int(suite.get("skipped")) == len(suite.findall(".//skipped"))
    [failure] = suite.findall(".//failure")
    assert re.search(r"time \+.*% \[\+.*%, \+.*%\], limit 5%", failure.get("message"))


def test_markdown_has_the_answer_and_a_table(sides):
    before, after = sides(number=1, driver_version="560")
    lines = run(*before, *after, "--fail-if", "time>5%", "--markdown").stdout.splitlines()
    assert lines[0].startswith("**")
    rows = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    assert "- driver_version: 550 -> 560" in lines


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("time>5", "write time>5%"),
        ("time<5%", "write time>5%"),
        ("time>nan%", "such as time>5%"),
        ("power>5%", "such as time>5%"),
        ("time>-5%", "such as time>5%"),
        ("", "such as time>5%"),
    ],
)
def test_a_limit_that_is_none_is_refused_with_one_that_is(limit, message):
    answer = run("a", "b", "--fail-if", limit)
    assert (answer.exit_code, message in answer.output) == (2, True)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"device_name": "Other"}, (), "device_name is Simulated before, Other after"),
        ({"machine_id_hash": "b"}, (), "machine_id_hash is a before, b after"),
        ({"protocol_version": 3}, (), "protocol_version is 4 before, 3 after"),
        ({"target": "h200"}, (), "none is in both"),
        ({}, ("--fail-if", "energy>3%"), "no operator has energy in all of the databases"),
        ({}, ("--by", "model"), "no model has time in all of the databases"),
    ],
)
def test_what_cannot_be_compared_is_refused(database, changes, options, message):
    before = database("a", study(1, machine_id_hash="a"))
    after = database("b", study(2, **{"machine_id_hash": "a"} | changes))
    answer = run(before, after, "--fail-if", "time>5%", *options)
    assert (answer.exit_code, message in answer.output) == (1, True), answer.output


def test_another_device_may_be_compared_anyway(database):
    before, after = database("a", study(1)), database("b", study(2, device_name="Other"))
    assert gate([before], [after], [LIMIT], anyway=True).things


def test_a_study_is_named_once(database):
    before, copy, after = (
        database(name, study(seed)) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    for sides in (([before], [before]), ([before], [copy]), ([before, copy], [after])):
        with pytest.raises(OpcostError, match="are the same study: name each study once"):
            gate(*sides, [LIMIT])


def test_the_workflow_for_a_public_host_calls_what_exists():
    workflow = yaml.safe_load((ROOT / "docs/how_to/gate.yaml").read_text())
    text = "\n".join(step.get("run", "") for step in workflow["jobs"]["gate"]["steps"])
    for name, options in re.findall(r"opcost (\w+) (.*)", text):
        command = main.get_command(click.Context(main), name)
        known = {option for each in command.params for option in each.opts}
        assert {*re.findall(r"--[\w-]+", options)} <= known
    assert {"--before", "--after"} <= {*re.findall(r"--[\w-]+", text)}


def test_options_of_the_gate_need_a_limit_and_two_sides(sides, tmp_path):
    before, after = (of[0] for of in sides(number=1))
    for arguments in ((before, after, "--markdown"), (before, "--fail-if", "time>5%"),
                      (before, after, "--fail-if", "time>5%", "--json")):  # fmt: skip
        assert run(*arguments).exit_code == 2
    content = after.read_bytes()
    for path in (tmp_path, after, tmp_path / "other.parquet"):
        assert run(before, after, "--fail-if", "time>5%", "--junit", path).exit_code == 1
    assert after.read_bytes() == content
