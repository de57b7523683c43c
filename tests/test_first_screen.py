"""The first screen: what models cost, where it goes, whether to trust it, and what to act on."""

import pytest
from opcost.costs.summary import details, first_screen
from opcost.rows.quantities import ENERGY, PREDICTION, TIME
from opcost.statistics import Estimate


@pytest.fixture
def three(compare):
    """Three models, one of which was disturbed, and their operators."""
    comparison, shares = compare()
    names = ("resnet34_56", "alexnet_224", "mobilenet_v2_224")
    rows = [comparison | {"model": name, "requested_half_width": 0.001} for name in names]
    rows[1] |= {"end_to_end_flags": ["disturbed"]}
    return rows, [share | {"model": name} for name in names for share in shares]


def test_three_models_are_answered_in_20_lines_of_at_most_100_characters(three):
    lines = first_screen(*three).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_on_a_narrow_terminal_no_line_is_longer_and_no_time_is_lost(three, columns, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    text = first_screen(*three)
    assert max(map(len, text.splitlines())) <= columns
    assert text.count("5.00 ms ± 5.7%") == 3


def test_each_model_has_its_cost_its_three_largest_parts_and_a_word_of_trust(three):
    text = first_screen(*three)
    for row in three[0]:
        cost, goes = (line for line in text.splitlines() if line.startswith(row["model"]))
        assert "5.00 ms ± 5.7%" in cost
        assert "conv2d 50%" in goes
    assert "poor: estimate -20.0% ± 5.4%, more than noise" in text
    assert "unverified: end to end disturbed by other programs" in text


def test_what_a_reader_must_act_on_is_a_line_with_what_helps(three):
    acts = first_screen(*three).split("\n\n")[3].splitlines()
    assert acts == [
        "Disturbed: alexnet_224; on a quiet machine, run opcost retry --flag disturbed",
        "Precision: ±0.1% requested, ±5.7% reached by 3 models; more rounds or a quieter machine "
        "narrow it",
        "No energy: simulated: no meter",
    ]


def test_joules_of_an_iteration_and_of_a_sample_stand_beside_the_time(compare):
    comparison, shares = compare()
    energy = ENERGY.of("end_to_end").columns(Estimate(2.0, 1.9, 2.1))
    text = first_screen([comparison | energy | {"batch_size": 8, "energy_reason": None}], shares)
    assert "2.00 J ± 5.0%" in text
    assert "250 mJ" in text
    assert "No energy" not in text


def test_a_missing_time_is_a_dash_with_a_line_that_gives_the_reason(compare):
    comparison, _ = compare()
    unknown = TIME.of("estimate").columns(None) | TIME.of("end_to_end").columns(None)
    row = comparison | unknown | {"time_reason": "1 of 3 operators failed", "failed_tuples": 1}
    text = first_screen([row], [])
    assert "tiny_cnn  1x3x8x8     -" in text
    assert "No estimate of tiny_cnn: opcost retry: 1 of 3 operators failed" in text


def test_only_what_failed_is_to_be_tried_again(compare):
    comparison, _ = compare()
    unknown = comparison | TIME.of("estimate").columns(None) | {"failed_tuples": 0}
    failed = unknown | {"model": "other", "failed_tuples": 1, "time_reason": "1 failed"}
    text = first_screen([unknown | {"time_reason": "1 filtered out"}, failed], [])
    assert "No estimate of tiny_cnn: 1 filtered out" in text
    assert "No estimate of other: opcost retry: 1 failed" in text


@pytest.mark.parametrize("name", ["n" * 10_000, "<b>&amp;</b>", "\x1b[31mred", "=1+1", "'; DROP"])
def test_any_name_is_printable_and_leaves_lines_readable(compare, name):
    comparison, shares = compare()
    lines = first_screen([comparison | {"model": name}], shares).splitlines()
    assert max(map(len, lines)) <= 120
    assert all(line.isprintable() for line in lines)


def test_models_of_which_only_some_are_predicted_share_a_table(three):
    comparison, shares = three
    comparison[2] |= PREDICTION.columns(Estimate(1.0, 0.8, 1.25))
    text = details(comparison, shares)
    header, *rows = (line for line in text.splitlines() if "predictions" in line or "3/3" in line)
    assert [line.split()[0] for line in rows[:3]] == [row["model"] for row in comparison]
    assert "-20% to +25%" in rows[2]
    assert "predictions" in header
    comparison[2] |= PREDICTION.columns(None)
    assert "predictions" not in details(comparison, shares)
