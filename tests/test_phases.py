"""The phases of a training step: parts of the sum, beside what the whole step takes in each."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from opcost.costs.caveats import caveats
from opcost.costs.comparison import compare
from opcost.costs.estimate import ModelEstimate
from opcost.costs.phases import phase_columns, phase_lines
from opcost.costs.shares import operator_shares
from opcost.costs.terms import terms_of
from opcost.measuring.phase_times import phase_times
from opcost.models.definition import COMPARED_PHASES, PHASES, InputSpec, ModelDefinition, Training
from opcost.rows.quantities import OVERHEADS, PHASE_TIMES, TIME
from opcost.statistics import Estimate
from opcost.tuples.extraction import extract_model_tuples

from tests.comparisons import OF_A_GPU, OVERHEAD, noise, other_models, row

TRAINING = {
    name: seconds
    for number, kind in enumerate([*OVERHEADS][3:], 2)
    for name, seconds in zip(
        (f"{kind}_overhead_s", f"{kind}_overhead_ci_low_s", f"{kind}_overhead_ci_high_s"),
        (number * 1e-5, 0.9 * number * 1e-5, 1.1 * number * 1e-5),
        strict=True,
    )
}
"""2, 3 and 4 hundredths of a millisecond for a call, 5 and 6 for a start."""


@pytest.fixture(scope="module")
def model():
    definition = ModelDefinition(
        "alexnet",
        (InputSpec((1, 3, 63, 63)),),
        model="alexnet",
        mode="training",
        training=Training("cross_entropy", targets=(InputSpec((1,), "int64", 9),), optimizer="SGD"),
    )
    return extract_model_tuples(definition)


def estimate(model, wholes=(), ratios=(), **changes):
    """Each operator takes a millisecond, and no code is cold."""
    rows = {
        record.operator_tuple.tuple_id: row(
            **{"tuple_id": record.operator_tuple.tuple_id, "core_cache_bytes": 2**40},
            **(OVERHEAD | TRAINING | changes),
        )
        for record, _ in model.kernels()
    }
    return ModelEstimate(model, terms_of(model, rows, set()), wholes, noise(*ratios))


def whole(*seconds):
    """A whole step of three phases."""
    columns = {}
    for phase, taken_s in zip(COMPARED_PHASES, seconds, strict=True):
        taken = Estimate(taken_s, 0.99 * taken_s, 1.01 * taken_s)
        columns |= PHASE_TIMES[phase].columns(taken)
    return row(sum(seconds), **columns)


WAITING_FOR_ITS_HOST = OF_A_GPU | {"host_time_s": 2e-3, "cold_call_overhead_s": None}


@pytest.mark.parametrize("changes", [{}, WAITING_FOR_ITS_HOST], ids=["processor", "gpu"])
def test_phases_add_up_to_the_sum(model, changes):
    found = estimate(model, **changes)
    columns = phase_columns(found)
    parts = [TIME.of(f"estimate_{phase}").read(columns) for phase in COMPARED_PHASES]
    assert sum(part.value for part in parts) == pytest.approx(found.summed_time.value)


def test_each_phase_has_its_operators_and_the_overhead_of_its_calls(model):
    found = estimate(model)
    columns = phase_columns(found)
    for number, phase in enumerate(COMPARED_PHASES, 2):
        names = ("forward", "loss") if phase == "forward" else (phase,)
        calls = [call for call in model.calls if call.phase in names]
        kernels = sum(model.tuples[call.position].launches_kernel for call in calls)
        views = len(calls) - kernels
        start_s = {"forward": 0.0, "backward": 5e-5, "optimizer": 6e-5}[phase]
        expected = kernels * (1e-3 + number * 1e-5) + views * 1e-6 + start_s
        assert columns[f"estimate_{phase}_time_s"] == pytest.approx(expected)


def test_what_the_whole_step_takes_in_a_phase_is_combined_over_runs(model):
    wholes = [whole(0.1, 0.2, 0.05), whole(0.1, 0.2, 0.06)]
    columns = phase_columns(estimate(model, wholes))
    found = [columns[f"end_to_end_{phase}_time_s"] for phase in COMPARED_PHASES]
    assert found == pytest.approx([0.1, 0.2, (0.05 * 0.06) ** 0.5])
    assert columns["end_to_end_optimizer_time_ci_high_s"] >= 0.06


def test_a_target_without_the_overhead_of_training_has_no_sum_and_says_what_to_do(model):
    found = estimate(model, forward_call_overhead_s=None)
    assert found.summed_time is None
    assert "before opcost knew training" in found.time_reason
    assert "delete results/local/device.json" in found.time_reason


def test_shares_of_all_phases_are_those_of_the_model(model):
    found = estimate(model)
    shares = [each for each in operator_shares(model, found.terms) if each["launches_kernel"]]
    assert {each["phase"] for each in shares} == {"forward", "loss", "backward", "optimizer"}
    assert sum(each["calls"] for each in shares) == found.calls
    assert sum(each["time_s"] for each in shares) == pytest.approx(found.operators_time.value)


def test_the_table_compares_each_phase_and_backward_with_forward(model):
    compared = {"model": "net", **phase_columns(estimate(model, [whole(0.1, 0.2, 0.05)]))}
    header, forward, backward, optimizer = phase_lines([compared])
    titles = "model phase estimate share end-to-end difference x forward"
    assert header.split() == titles.split()
    assert [line.split()[:2] for line in (forward, backward, optimizer)] == [
        ["net", phase] for phase in COMPARED_PHASES
    ]


def test_how_many_times_as_long_backward_takes_is_of_the_whole_step(model):
    compared = {"model": "net", **phase_columns(estimate(model, [whole(0.1, 0.2, 0.05)]))}
    assert phase_lines([compared])[2].endswith("  2.00 ± 1.4%")
    unknown = {name: None for name in compared if name.startswith("estimate")}
    assert phase_lines([compared | unknown])[2].endswith("  2.00 ± 1.4%")


def test_without_the_phases_of_the_whole_step_it_is_of_the_sum(model):
    compared = {"model": "net", **phase_columns(estimate(model))}
    ratio = compared["estimate_backward_time_s"] / compared["estimate_forward_time_s"]
    assert f"  {ratio:.3f} ± " in phase_lines([compared])[2]
    assert phase_lines([compared])[2].endswith("% (estimate)")


def test_the_phases_of_a_disturbed_step_are_left_out_if_others_were_not(model):
    slow = whole(0.2, 0.2, 0.2) | {"flags": ["disturbed"]}
    columns = phase_columns(estimate(model, [whole(0.1, 0.2, 0.05), slow]))
    assert columns["end_to_end_forward_time_s"] == 0.1


@pytest.mark.parametrize("quiet", [0, 3, 8])
def test_phases_of_a_step_have_an_interval_however_few_batches_are_undisturbed(quiet):
    looks = iter([True] * (quiet + 1) + [False] * 100)

    @contextmanager
    def noting(clock):
        yield
        clock.seconds = dict.fromkeys(PHASES, 0.25)

    found = phase_times(
        SimpleNamespace(noting=noting, run=lambda iterations: None),
        SimpleNamespace(look=lambda: next(looks)),
        SimpleNamespace(estimate=Estimate(1.0, 0.9, 1.1), block_iterations=1),
        least_s=0.0,
    )
    assert found["forward"].value == pytest.approx(0.5)
    assert all(each.low < each.value < each.high for each in found.values())


def test_inference_has_no_phases():
    definition = ModelDefinition("alexnet", (InputSpec((1, 3, 63, 63)),), model="alexnet")
    columns = phase_columns(estimate(extract_model_tuples(definition)))
    assert set(columns.values()) == {None}
    assert phase_lines([{"model": "net", **columns}]) == []


def test_the_model_error_of_a_training_step_is_from_other_steps_alone(model):
    wholes, said = [whole(0.1, 0.2, 0.05)], "The interval of an estimate lacks the model error"
    inference, steps = other_models(1.01, 0.99, 1.01), other_models(1.05, 1.08, trains=True)
    for ratios, models in ((inference, None), ([*inference, *steps], 2)):
        found = estimate(model, wholes, ratios)
        compared = {"model": "alexnet", **compare(found)}
        assert compared["model_error_models"] == models
        lacks = any(text.startswith(said) for text in caveats([compared]))
        assert lacks == (models is None)
