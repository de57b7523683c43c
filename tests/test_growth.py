"""Growing the list of operators until their time is near that of the model end to end."""

import json

import pytest
from click.testing import CliRunner
from opcost.addresses import definition_address
from opcost.commands import main
from opcost.results_folder import MODELS, measurement, target_folder
from opcost.rows import records, schemas

from tests.checkout import STUDY
from tests.comparisons import CONDITIONS, database

CNN = str(STUDY / "models" / "tiny_cnn.yaml")


@pytest.fixture
def explained(tiny_tuples, tmp_path):
    """The answer of `opcost explain --until` on tiny_cnn, whose operators take 1 ms each: two calls
    of conv2d, one of relu, one of linear; end to end it takes so many seconds, if known.
    """

    def answer(share, end_to_end_s, *words, **changes):
        cnn = tiny_tuples[1]
        path = database(tmp_path / "database.parquet", [cnn], **changes)
        if end_to_end_s:
            row = {"status": "ok", "time_s": end_to_end_s, "flags": [], "differing_calls": []}
            folder = target_folder("local", "cpu-0", tmp_path)
            whole = measurement(folder, MODELS, definition_address(cnn.definition))
            described = CONDITIONS | records.model_columns(cnn.definition)
            records.write(whole, schemas.MODEL, [described | row])
        asked = ["explain", CNN, "-d", str(path), "--until", str(share), *words]
        return CliRunner().invoke(main, asked)

    return answer


@pytest.mark.parametrize(
    ("share", "end_to_end_s", "reached"),
    [
        (0.5, 4e-3, 1),
        (0.75, 4e-3, 2),
        (0.95, 4e-3, 3),
        (0.95, 3.4e-3, None),  # 88 %, then 118 %
        (0.95, 5e-3, None),
    ],
)
def test_it_takes_the_fewest_parts_whose_sum_is_near_from_either_side(
    explained, share, end_to_end_s, reached
):
    answer = explained(share, end_to_end_s, "--json")
    [found] = json.loads(answer.output)["until"]
    assert found["reached"] == reached
    assert answer.exit_code == (0 if reached else 3)
    sums = [each["sum"] for each in found["parts"]]
    assert sums[:3] == pytest.approx([each / end_to_end_s for each in (2e-3, 3e-3, 4e-3)])


def test_the_answer_lists_parts_with_their_sum_and_what_the_others_take(explained):
    lines = explained(0.75, 4e-3).output.splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("until 0.75 of the time"))
    assert [line.split() for line in lines[begin + 1 : begin + 3]] == [
        ["conv2d", "2", "2.000", "ms", "50.0%"],
        ["relu", "1", "1.000", "ms", "75.0%"],
    ]
    assert lines[begin + 3].startswith("2 other parts: 1.")
    assert " ".join(" ".join(lines[begin + 3 :]).split()).endswith("; 0 tuples not measured")


@pytest.mark.parametrize(("end_to_end_s", "exceeds"), [(2.2e-3, True), (6e-3, False)])
def test_parts_that_exceed_the_time_end_to_end_are_said_to(explained, end_to_end_s, exceeds):
    said = "exceeds the time end to end" in " ".join(explained(0.9, end_to_end_s).output.split())
    assert said == exceeds


def test_an_aim_that_is_never_reached_is_stated_with_what_is_missing(explained):
    answer = explained(0.95, 5e-3, without=["linear"])
    assert "Never: all of them take 6" in answer.output
    assert "; 1 tuple not measured" in answer.output


def test_without_a_time_end_to_end_there_is_nothing_to_reach(explained):
    answer = explained(0.95, None)
    assert answer.exit_code == 3
    assert "until 0.95 of the time end to end on local: no such time" in answer.output
