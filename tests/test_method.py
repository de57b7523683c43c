"""The method's own error is what further models find, and a model does not vouch for itself."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.costs.method import Difference, labelled, method_columns, method_error, method_in
from opcost.costs.model_speeds import speeds_of_models
from opcost.databases.measured import Measured
from opcost.rows import records, schemas
from opcost.rows.quantities import (
    ENERGY,
    MODEL_SPEED,
    MODEL_SPEED_SD,
    ROUND_SPEEDS,
    SPEED_COLUMNS,
    TIME,
)

differences = st.lists(
    st.builds(Difference, st.floats(-0.5, 1.0), st.floats(1e-4, 0.3)), min_size=2, max_size=20
)


def drawn(generator, sd, models, error):
    """The models of a target, and the error of the method in a further one."""
    measured = generator.normal(0, math.hypot(sd, error), models)
    found = method_error([Difference(math.expm1(each), error) for each in measured])
    return found, math.expm1(generator.normal(0, sd))


def coverage(generator, sds, models, error):
    pairs = [drawn(generator, sd, models, error) for sd in sds]
    return np.mean([abs(further) <= found.half_width for found, further in pairs])


@pytest.mark.parametrize("models", [2, 3, 8, 20])
@pytest.mark.parametrize("error", [0.005, 0.03])
def test_intervals_hold_further_models_of_targets_as_they_are_expected(models, error):
    generator = np.random.default_rng(0)
    sds = 0.04 * 2.0 ** generator.normal(0, 1, 3000)
    assert 0.93 <= coverage(generator, sds, models, error) <= 0.97


@pytest.mark.parametrize("sd", [0.01, 0.03, 0.1])
@pytest.mark.parametrize("error", [0.005, 0.03])
def test_with_many_models_they_hold_further_ones_on_any_target(sd, error):
    found = coverage(np.random.default_rng(1), [sd] * 1500, 15, error)
    assert 0.92 <= found <= (0.98 if error < sd else 1)


def test_many_models_tell_the_methods_error():
    generator = np.random.default_rng(2)
    found, _ = drawn(generator, 0.05, 400, 0.01)
    assert found.sd == pytest.approx(0.05, rel=0.1)
    assert found.half_width == pytest.approx(1.96 * found.sd, rel=0.02)


def test_a_difference_that_measurement_explains_says_little_about_the_method():
    noisy = method_error([Difference(0.1, 0.1), Difference(-0.1, 0.1)])
    sure = method_error([Difference(0.1, 0.001), Difference(-0.1, 0.001)])
    assert noisy.sd < 0.06 < sure.sd


@given(differences)
def test_an_interval_is_finite_and_grows_with_the_differences(found):
    error = method_error(found)
    assert 0 < error.half_width < math.inf
    assert error.degrees_of_freedom > 4
    assert error.models == len(found)
    worse = method_error([*found, Difference(1.5, 1e-4)])
    assert worse.sd > error.sd


def test_models_in_training_tell_the_error_of_training_and_others_of_inference():
    found = [Difference(value, 0.01) for value in (-0.2, 0.01, -0.01, 0.02, -0.15, -0.16)]
    trained = [True, False, False, False, True, True]
    labels = [labelled(name, each) for name, each in zip("abcdef", trained, strict=True)]
    row = method_columns(labels, {TIME: found})
    assert method_in(row, TIME, "new") == method_error(found[1:4])
    assert row["time_method_sd"] == method_error(found[1:4]).sd
    in_training = method_in(row, TIME, "new", trained=True)
    assert in_training == method_error([found[0], *found[4:]], trained=True)
    assert in_training.half_width > 0.16 > method_in(row, TIME, "new").half_width
    assert method_in(row, TIME, "a", trained=True) == method_error(found[4:], trained=True)


@pytest.mark.parametrize("models", [0, 1])
def test_without_models_in_training_its_error_is_about_the_usual(models):
    """Sums of training steps of docs/explanation/training.md differ from wholes by 6 %."""
    found = [Difference(-0.01, 0.01)] * models
    inference = [Difference(0.001, 0.01)] * 5
    labels = [*"abcde", *(labelled(name, True) for name in "uv"[:models])]
    row = method_columns(labels, {TIME: inference + found})
    error = method_in(row, TIME, "step", trained=True)
    assert error == method_error(found, trained=True)
    assert 0.1 < error.half_width < 0.25
    assert error.models == models


@pytest.mark.parametrize("models", [0, 1])
def test_fewer_than_two_models_tell_nothing(models):
    assert method_error([Difference(0.01, 0.01)] * models) is None


def test_of_a_model_only_the_others_tell():
    found = [Difference(0.3, 0.01), Difference(0.01, 0.01), Difference(-0.01, 0.01), None]
    names = ["off", "first", "second", "unknown"]
    row = method_columns(names, {TIME: found, ENERGY: [None] * 4})
    assert method_in(row, TIME, "off") == method_error(found[1:3])
    assert method_in(row, TIME, "never_measured") == method_error(found[:3])
    assert row["time_method_sd"] == method_error(found[:3]).sd
    assert method_in(row, ENERGY, "off") is None
    assert row["energy_method_sd"] is None


def test_whole_models_run_at_the_speed_that_they_would_have_if_all_rounds_were_as_fast_as_usual(
    tmp_path,
):
    """Round 2 is slower by a quarter; models run at 95 % of the speed of operators in each."""
    law = dict(zip(SPEED_COLUMNS, (2000.0, 0.1, 1.0, 0.1), strict=True))
    executed = [([1], [2000.0]), ([1, 2], [2000.0, 1500.0])]
    rows = {
        str(number): law | {"execution_round": rounds, "execution_core_speed_per_s": speeds}
        for number, (rounds, speeds) in enumerate(executed * 6)
    }
    speeds = {"models": 1900.0, "models_2": 1425.0, "models_3": 1900.0}
    ok = {"status": "ok", "flags": []}
    files = {folder: ok | {"core_speed_per_s": speed} for folder, speed in speeds.items()}
    files["models_4"] = ok | {"core_speed_per_s": 1000.0, "flags": ["disturbed"]}
    files["models_5"] = {"status": "timeout", "error": "took too long"}
    paths = [tmp_path / "local" / "cpu-0" / folder / "net-0.parquet" for folder in files]
    for path, row in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True)
        records.write(path, schemas.MODEL, [row])
    found = speeds_of_models(Measured(models=[paths]), {"local/cpu-0": rows})["local/cpu-0"]
    assert found[MODEL_SPEED] == pytest.approx(1900)
    # Round 3 has no operators, but the model.
    assert found[ROUND_SPEEDS] == [2000.0, 1500.0, pytest.approx(2000.0)]
    # They vary by nothing, as two degrees of freedom say, beside two of all executions.
    assert found[MODEL_SPEED_SD] == pytest.approx(0.1 * math.sqrt(2 / 4))
