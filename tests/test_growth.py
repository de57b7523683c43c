"""Growing the list of operators until their time is near that of the model end to end."""

import json

import pytest
from click.testing import CliRunner
from opcost.addresses import definition_address
from opcost.commands import main
from opcost.costs.breakdown import Part
from opcost.costs.growth import Growth, growth_text
from opcost.results_folder import MODELS, measurement, target_folder
from opcost.rows import records, schemas

from tests.checkout import STUDY
from tests.comparisons import CONDITIONS, database

CNN = str(STUDY / "models" / "tiny_cnn.yaml")
PARTS = (
    Part("conv2d", 6e-3, 0.6, 4),
    Part("max_pool2d", 3e-3, 0.3, 1),
    Part("call overhead", 0.5e-3, 0.05),
)


@pytest.mark.parametrize(
    ("share", "end_to_end_s", "reached"),
    [
        (0.6, 10e-3, 1),
        (0.9, 10e-3, 2),
        (0.95, 10e-3, 3),
        (0.97, 10e-3, None),
        (0.95, 7.5e-3, None),  # 80 %, then 120 %
        (0.95, None, None),
    ],
)
def test_it_takes_the_fewest_parts_whose_sum_is_near_from_either_side(share, end_to_end_s, reached):
    assert Growth("local", share, PARTS, end_to_end_s, 0).reached == reached


def test_the_answer_lists_parts_with_their_sum_and_what_the_others_take():
    lines = growth_text([Growth("local", 0.9, PARTS, 10e-3, 0)]).splitlines()
    assert lines[0].startswith("until 90% of 10.00 ms, on local")
    assert [line.split() for line in lines[1:]] == [
        ["conv2d", "4", "6.000", "ms", "60.0%"],
        ["max_pool2d", "1", "3.000", "ms", "90.0%"],
        ["The", "rest,", "1", "part:", "500.0", "µs,", "5.0%."],
    ]


def test_an_aim_that_is_never_reached_is_stated_with_what_is_missing():
    text = growth_text([Growth("local", 0.97, PARTS, 10e-3, 2)])
    assert "Never within 3.0%: all together, 95.0%. 2 tuples not measured." in text


@pytest.fixture
def measured(tiny_tuples, tmp_path):
    """A results folder with tiny_cnn end to end in so many seconds, if known; the answer of
    `opcost explain` on it.
    """

    def answer(end_to_end_s, *words, **changes):
        cnn = tiny_tuples[1]
        path = database(tmp_path / "database.parquet", [cnn], **changes)
        row = {"status": "ok", "time_s": end_to_end_s, "flags": [], "differing_calls": []}
        folder = target_folder("local", "cpu-0", tmp_path)
        whole = measurement(folder, MODELS, definition_address(cnn.definition))
        whole.parent.mkdir(parents=True)
        if end_to_end_s:
            described = CONDITIONS | records.model_columns(cnn.definition)
            records.write(whole, schemas.MODEL, [described | row])
        return CliRunner().invoke(main, ["explain", CNN, "-d", str(path), *words])

    return answer


def test_explain_grows_the_list_from_the_study_that_measured_the_model(measured):
    answer = measured(5e-3, "--until", "60%", "--json")
    [target] = json.loads(answer.output)["targets"]
    assert answer.exit_code == 0
    assert [part["name"] for part in target["until"]["parts"]][:2] == ["conv2d", "relu"]
    assert target["until"]["sums"][:2] == [pytest.approx(0.4), pytest.approx(0.6)]
    assert target["until"]["reached"] == 2


def test_explain_exits_with_3_if_the_aim_is_never_reached(measured):
    answer = measured(10e-3, "--until", "95%")
    assert answer.exit_code == 3
    assert "Never within 5.0%" in answer.output


def test_without_a_time_end_to_end_there_is_nothing_to_reach(measured):
    answer = measured(None, "--until", "95%")
    assert answer.exit_code == 3
    assert "Until 95% on local: no time end to end, which opcost run measures" in " ".join(
        answer.output.split()
    )


@pytest.mark.parametrize("share", ["95", "0%", "100%", "much"])
def test_a_share_is_stated_in_per_cent(share):
    answer = CliRunner().invoke(main, ["explain", CNN, "--until", share])
    assert answer.exit_code == 2
    assert "give a share between 0% and 100%, such as 95%" in answer.output
