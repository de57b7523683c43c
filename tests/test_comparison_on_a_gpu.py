"""The estimate of a model on a GPU is the larger of host and device, plus waits."""

import pytest
from opcost.costs.estimate import ModelEstimate
from opcost.costs.estimate_columns import estimate_columns
from opcost.costs.module_tree import module_tree
from opcost.costs.terms import terms_of
from opcost.report.picture import draw
from opcost.rows.quantities import HOST_TIME, OVERHEADS, TIME

from tests.comparisons import OF_A_GPU, launched_in, row, summary


@pytest.fixture
def on_a_gpu(compare):
    """Compare tiny_cnn on a GPU, without its costs by operator."""
    return lambda **given: compare(reference=OF_A_GPU, **given)[0]


SEVERAL = 42e-6**0.5
"""The geometric mean of 6 and 7 ms."""


def test_a_gpu_that_is_slower_than_its_host_takes_what_its_operators_take(on_a_gpu):
    comparison = on_a_gpu(power_w=100.0, **launched_in(1e-4))
    assert comparison["estimate_time_s"] == pytest.approx(4e-3)
    assert comparison["operators_time_s"] == pytest.approx(4e-3)
    assert (comparison["idle_time_s"], comparison["host_bound_share"]) == (0, 0)
    assert comparison["host_time_s"] == pytest.approx(4 * 1.1e-4 + 1e-6)
    assert (comparison["overhead_time_s"], comparison["cold_calls"]) == (None, None)
    assert comparison["estimate_energy_j"] == pytest.approx(4e-3 * 100)


def test_a_gpu_that_is_faster_than_its_host_waits_for_it_at_the_power_of_an_idle_one(on_a_gpu):
    comparison = on_a_gpu(power_w=100.0, **launched_in(2e-3))
    host_s = 4 * 2.01e-3 + 1e-6
    idle_s = host_s - 4e-3
    assert comparison["estimate_time_s"] == pytest.approx(host_s)
    assert comparison["operators_time_s"] == pytest.approx(4e-3)
    assert comparison["idle_time_s"] == pytest.approx(idle_s)
    assert comparison["host_bound_share"] == pytest.approx(idle_s / host_s)
    assert comparison["estimate_energy_j"] == pytest.approx(4e-3 * 100 + idle_s * 20)


def test_the_host_is_as_fast_as_it_was_in_the_whole_model(compare):
    whole = OF_A_GPU | launched_in(6e-3)
    comparison, _ = compare(reference=whole, again=[launched_in(7e-3)], **launched_in(2e-3))
    assert comparison["estimate_time_s"] == pytest.approx(SEVERAL)
    assert comparison["end_to_end_host_time_s"] == pytest.approx(SEVERAL)
    assert comparison["host_time_s"] == pytest.approx(4 * 2.01e-3 + 1e-6)
    assert comparison["idle_time_s"] == pytest.approx(SEVERAL - 4e-3)
    assert (
        comparison["estimate_time_ci_low_s"] < 6e-3 < 7e-3 < comparison["estimate_time_ci_high_s"]
    )
    text = summary([comparison], [])
    told = "the host needs 6.481 ms to launch its calls (estimated: 8.041 ms)"
    assert told in text


def test_without_a_whole_model_the_interval_reaches_over_models(tiny_tuples):
    _, cnn = tiny_tuples
    overhead = dict.fromkeys(OVERHEADS["call"].names, 1e-3)
    rows = {key: row(**launched_in(2e-3, **overhead)) for key in cnn.by_id}
    columns = estimate_columns(ModelEstimate(cnn, terms_of(cnn, rows, set())))
    limits_s = columns["estimate_time_ci_low_s"], columns["estimate_time_ci_high_s"]
    # Calls of other models have -0.4 to 2.9 times the overhead.
    assert limits_s == pytest.approx((4 * 1.6e-3, 4 * 4.9e-3), rel=0.03)


def varying(quantity, value):
    """Two runs around a value that differ by two thirds."""
    return {quantity.runs: [value / 1.3, value * 1.3], quantity.run_errors: [0.0, 0.0]}


@pytest.mark.parametrize(("host_s", "slower"), [(2e-3, HOST_TIME), (1e-4, TIME)])
def test_the_interval_is_that_of_the_slower_of_host_and_device(on_a_gpu, host_s, slower):
    def high_s(**runs):
        return on_a_gpu(**launched_in(host_s, **runs))["estimate_time_ci_high_s"]

    exact_s = high_s()
    for quantity, value in ((HOST_TIME, host_s), (TIME, 1e-3)):
        found = high_s(**varying(quantity, value)) / exact_s
        assert found > 1.05 if quantity == slower else found == pytest.approx(1)


def test_a_model_that_waits_for_its_host_varies_like_its_host(compare):
    def half_width(**runs):
        comparison, _ = compare(reference=OF_A_GPU, **launched_in(40e-3, **runs))
        return comparison["end_to_end_time_ci_high_s"] / comparison["end_to_end_time_s"] - 1

    assert half_width(**varying(HOST_TIME, 40e-3)) > half_width() + 0.05
    assert half_width(**varying(TIME, 1e-3)) == pytest.approx(half_width())


def test_a_host_that_waits_for_its_device_does_nothing_meanwhile(on_a_gpu):
    waiting = {"flags": ["waits_for_device"], **launched_in(None)}
    comparison = on_a_gpu(operators={"linear": waiting}, **launched_in(2e-4))
    assert comparison["time_reason"] is None
    assert comparison["estimate_time_s"] == pytest.approx(4e-3 + 2.1e-4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (launched_in(None), "3 of 3 rows do not say what the host needs to launch the operator"),
        (launched_in(1e-4, call_overhead_s=None), "the database has no call overhead of target"),
    ],
)
def test_without_its_host_there_is_no_estimate_for_a_gpu(on_a_gpu, changes, reason):
    comparison = on_a_gpu(**changes)
    assert comparison["time_reason"].startswith(reason)
    nothing = ("estimate_time_s", "operators_time_s", "host_time_s", "idle_time_s")
    assert [comparison[name] for name in nothing] == [None] * 4
    assert comparison["partial_time_s"] == pytest.approx(4e-3)


def test_waiting_without_the_power_of_an_idle_gpu_has_no_energy(on_a_gpu):
    comparison = on_a_gpu(power_w=100.0, idle_power_w=None, **launched_in(2e-3))
    assert comparison["estimate_time_s"] is not None
    assert comparison["estimate_energy_j"] is None
    assert comparison["energy_reason"].startswith("the device waits for its host, and no row has")


def test_a_modules_time_is_that_of_its_operators(tiny_tuples):
    _, cnn = tiny_tuples
    rows = {key: row(**launched_in(2e-3)) for key in cnn.by_id}
    estimate = ModelEstimate(cnn, terms_of(cnn, rows, set()))
    root, *below = module_tree(estimate_columns(estimate), estimate.modules(), most=None)
    of_operators = [
        each for each in below if each.depth == 1 and "wait for the host" not in each.path
    ]
    assert sum(each.time_s for each in of_operators) == pytest.approx(4e-3)
    assert (root.time_s, root.share) == (pytest.approx(estimate.time.value), 1.0)


def test_a_summary_says_how_long_a_gpu_waits_for_its_host(on_a_gpu, compare):
    waiting, busy = on_a_gpu(**launched_in(2e-3)), on_a_gpu(**launched_in(1e-4))
    assert (
        "tiny_cnn waits for its host 50% of the time: the host needs 8.041 ms to launch its calls "
        "(estimated), the device 4.000 ms to run them."
    ) in summary([waiting], [])
    assert "tiny_cnn does not wait for its host: the host needs 441.0 µs" in summary([busy], [])
    assert "waits for its host" not in summary([compare()[0]], [])


def test_the_figure_shows_how_long_a_gpu_waits_for_its_host(compare, tmp_path):
    for power_w in (None, 100.0):
        given = compare(power_w=power_w, reference=OF_A_GPU, **launched_in(2e-3))
        draw(tmp_path / "figure.svg", [given[0]], given[1])
        assert (tmp_path / "figure.svg").read_text().count(">wait for the host<") == 1
