"""Operators in place: each call is timed inside the running model, and compared with it alone."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from opcost.costs.caveats import caveats
from opcost.costs.comparison import compare
from opcost.costs.estimate import ModelEstimate
from opcost.costs.explanation import END_TO_END_COLUMNS
from opcost.costs.in_context import GROUPINGS, between_calls
from opcost.costs.in_context_text import context_cells, difference_cells, tuple_cells
from opcost.costs.terms import terms_of
from opcost.devices.disturbance import Watch
from opcost.devices.kinds import KINDS
from opcost.measuring import benchmark
from opcost.measuring.in_context import VARYING, WAITING, time_in_context
from opcost.measuring.subjects import ModelSubject
from opcost.measuring.workload import ModelWorkload
from opcost.models.configs import define_models
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.models.inputs import Arguments
from opcost.rows.quantities import CALL_TIME, OVERHEADS, PHASE_TIMES, TIME
from opcost.statistics import Estimate
from opcost.text import seconds, with_margin, without_interval
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.model_tuples import read_model_tuples
from opcost.tuples.recorder import CallLog

from tests.comparisons import OVERHEAD, noise, row
from tests.quick_measurement import QUICK
from tests.stations import station_of

MARK_S = 1e-6


class SimulatedDevice:
    """Its clock stands still but for its marks, which take a microsecond, and its operator."""

    def __init__(self, kind="cpu", waits=False):
        self.kind, self.now_s, self._waits = KINDS[kind], 0.0, waits

    def hold_back(self, hold_s):
        return lambda: self._waits

    def mark(self):
        self.now_s += MARK_S
        return self.now_s

    def between_s(self, marks):
        return [after - before for before, after in marks]


@pytest.fixture(scope="module")
def takes():
    """An operator that takes so many microseconds of the clock of `takes.device`."""

    @torch.library.custom_op("opcost_tests::takes", mutates_args=())
    def operator(x: torch.Tensor, microseconds: int) -> torch.Tensor:
        operator.device.now_s += microseconds * 1e-6
        return x.clone()

    return operator


class Model(torch.nn.Module):
    """Calls an operator that takes 30 us, and one that takes 5 us; every third run has another."""

    def __init__(self, takes, varies=False):
        super().__init__()
        self._takes, self._varies, self._runs = takes, varies, 0

    def forward(self, x):
        self._runs += 1
        if self._varies and self._runs % 3 == 0:
            x = self._takes(x, 1)
        return self._takes(self._takes(x, 30), 5)


def timed(takes, device, block_iterations=2, **options):
    takes.device = device
    workload = ModelWorkload([Model(takes, **options)], [Arguments((torch.zeros(2),), {})])
    with torch.inference_mode():
        with CallLog() as log:
            workload.output()
        timing = type("Timing", (), {"block_iterations": block_iterations})
        return time_in_context(workload, log.operator_tuples, device, Watch(), timing, 0.0)


def test_each_call_takes_the_time_that_passes_in_it_without_that_of_the_clock(takes):
    found = timed(takes, SimulatedDevice())
    for name in CALL_TIME.names:
        assert found[name] == pytest.approx([30e-6, 5e-6], abs=1e-12)
    assert found["clocked_passes"] >= 10


def test_a_part_of_sustained_operation_has_more_iterations_than_are_timed_in_place(takes):
    assert timed(takes, SimulatedDevice(), block_iterations=10**9)["clocked_passes"] <= 1000


def test_a_model_whose_calls_vary_is_not_timed_in_place(takes):
    assert timed(takes, SimulatedDevice(), varies=True) == {"in_context_reason": VARYING}


def test_a_model_that_makes_as_many_other_calls_is_not_timed_in_place():
    class Alternates(torch.nn.Module):
        runs = 0

        def forward(self, x):
            self.runs += 1
            return torch.relu(x) if self.runs % 3 else torch.sigmoid(x)

    workload = ModelWorkload([Alternates()], [Arguments((torch.zeros(2),), {})])
    with torch.inference_mode():
        with CallLog() as log:
            workload.output()
        timing = type("Timing", (), {"block_iterations": 2})
        calls = log.operator_tuples
        found = time_in_context(workload, calls, SimulatedDevice(), Watch(), timing, 0.0)
    assert found == {"in_context_reason": VARYING}


def test_a_gpu_that_waits_for_its_host_inside_the_model_has_no_times_in_place(takes):
    assert timed(takes, SimulatedDevice("cuda", waits=True)) == {"in_context_reason": WAITING}


DEFINITION = ModelDefinition("squeezenet1_1", (InputSpec((1, 3, 32, 32)),), model="squeezenet1_1")


@pytest.fixture(scope="module")
def model():
    return extract_model_tuples(DEFINITION)


def ids_of(model):
    """The tuple id of each call."""
    ids = list(model.by_id)
    return [ids[call.position] for call in model.calls]


def test_every_whole_model_is_timed_call_by_call(model, cpu, watch):
    found = benchmark.measure(ModelSubject(DEFINITION, None, model), station_of(cpu, QUICK, watch))
    assert (found["status"], found.get("in_context_reason")) == ("ok", None)
    assert found["call_tuple_id"] == ids_of(model)
    assert min(found["call_time_s"]) >= 0
    assert 0 < sum(found["call_time_s"]) < found["clocked_time_s"]


def whole(model, call_s, whole_s, **changes):
    """The row of a whole model whose calls all take the same time, within 1 %."""
    times = [[factor * call_s] * len(model.calls) for factor in (1, 0.99, 1.01)]
    columns = dict(zip(CALL_TIME.names, times, strict=True))
    columns |= {"call_tuple_id": ids_of(model), "clocked_time_s": 1.1 * whole_s}
    return row(whole_s, **{**columns, **changes})


def estimate(model, *wholes, variation=0.0, **changes):
    """Each operator takes a millisecond alone, and no code is cold."""
    rows = {
        tuple_id: row(tuple_id=tuple_id, core_cache_bytes=2**40, **OVERHEAD, **changes)
        for tuple_id in model.by_id
    }
    return ModelEstimate(model, terms_of(model, rows, set()), wholes, noise(time=variation))


@given(st.floats(1e-4, 1e-2), st.floats(0.5, 5.0))
def test_the_difference_of_sum_and_whole_has_two_parts(model, call_s, whole_s):
    found = estimate(model, whole(model, call_s, whole_s))
    columns = {**compare(found)}
    added_s = columns["in_context_time_s"] - columns["operators_time_s"]
    beyond_s = columns["between_calls_time_s"] - columns["overhead_time_s"]
    assert added_s + beyond_s == pytest.approx(whole_s - columns["estimate_time_s"])
    assert sum(each["added_time_s"] for each in found.in_context.rows()) == pytest.approx(added_s)


def test_an_operator_in_context_is_compared_with_it_isolated(model):
    found = estimate(model, whole(model, 1.2e-3, 0.1))
    rows = found.in_context.rows()
    assert {each["tuple_id"] for each in rows} == {
        each.operator_tuple.tuple_id for each, _ in found.model.kernels()
    }
    for each in rows:
        assert each["in_context_time_s"] == pytest.approx(1.2e-3)
        assert each["time_in_context_ratio"] == pytest.approx(1.2)
        assert each["time_in_context_ratio_ci_low"] < 1.2 < each["time_in_context_ratio_ci_high"]
    [convolutions] = [cells for cells in profiled(found, "operator") if "conv2d" in cells.values()]
    assert (convolutions["calls"], convolutions["isolated"][:7]) == ("26", "26.00 m")
    assert (convolutions["in context"][:7], convolutions["relative"][:3]) == ("31.2 ms", "+20")
    assert all(cells["relative"].startswith("+20") for cells in tuple_cells(rows))


@pytest.mark.parametrize("kind", GROUPINGS)
def test_groups_are_known_no_better_than_the_whole_model_and_all_of_them_together(model, kind):
    found = one_off(model)
    parts = [found.in_context.in_context(each.numbers) for each in found.in_context.groups(kind)]
    total = found.in_context.operators
    assert sum(each.value for each in parts) == pytest.approx(total.value)
    assert (
        min(each.relative_half_width for each in parts) >= found.end_to_end_time.relative_half_width
    )
    assert sum(each.half_width for each in parts) >= total.half_width * 0.999


def test_a_model_is_a_row_of_what_makes_up_the_difference(model):
    found = estimate(model, whole(model, 1.5e-3, 0.2))
    [cells] = difference_cells([{"model": "net", "target": "local", **compare(found)}])
    assert cells["in context"].startswith("96.0 ms")
    assert (cells["relative"], cells["with clock"]) == ("+50%", "+10%")
    assert cells["between calls"] == profiled(found, "operator")[-2]["in context"]


def test_shares_of_the_sum_are_compared_with_those_in_the_running_model(model):
    kernels = sum(count for _, count in model.kernels())
    overhead_s = compare(estimate(model, whole(model, 1e-3, 0.1)))["overhead_time_s"]
    as_in_the_sum = estimate(model, whole(model, 1e-3, kernels * 1e-3 + overhead_s))
    assert compare(as_in_the_sum)["largest_share_difference"] == pytest.approx(0)
    half_between = estimate(model, whole(model, 1e-3, kernels * 2e-3))
    of_the_sum = overhead_s / (kernels * 1e-3 + overhead_s)
    found = compare(half_between)["largest_share_difference"]
    assert found == pytest.approx(0.5 - of_the_sum)


def test_an_explanation_reads_all_that_times_in_place_need(model):
    columns = whole(model, 1e-3, 0.1)
    read = {name: columns.get(name) for name in END_TO_END_COLUMNS}
    both = [estimate(model, each).in_context.columns() for each in (columns, read)]
    assert both[0] == both[1]


def test_shares_are_not_compared_if_an_operator_was_not_measured_alone(model):
    found = estimate(model, whole(model, 1e-3, 0.1), status="error")
    assert compare(found)["largest_share_difference"] is None


def test_shares_of_runs_are_averaged(model):
    found = estimate(model, whole(model, 1e-3, 0.1), whole(model, 8e-3, 0.4))
    kernels = sum(count for _, count in model.kernels())
    assert found.end_to_end_time.value == pytest.approx(0.2)
    assert found.in_context.operators.value == pytest.approx((0.01 + 0.02) / 2 * 0.2 * kernels)
    assert found.in_context.operators.high > 8e-3 * kernels * 0.5


ONE_OFF = {16.4e-3: 19.0e-3, 8.19e-3: 11.4e-3, 7.03e-3: 9.85e-3, 6.66e-3: 9.06e-3}
"""Seconds of the whole model in four runs -> seconds with the clock."""


def one_off(model, variation=0.05):
    """Four runs, of which the first disagrees, and is much slower between its calls."""
    kernels = sum(count for _, count in model.kernels())
    wholes = [
        whole(model, (0.5 if s > 0.01 else 0.9) * s / kernels, s, clocked_time_s=clocked_s)
        for s, clocked_s in ONE_OFF.items()
    ]
    return estimate(model, *wholes, variation=variation)


def told(found):
    """What the caveats say of runs that disagree, or do not count."""
    row = {"model": "squeezenet1_1", **compare(found)}
    return [text for text in caveats([row]) if text.startswith(("Left out", "Runs that"))]


def test_runs_that_disagree_are_told_and_are_all_in_the_interval(model):
    found = one_off(model)
    assert told(found) == [
        "Runs that disagree, so that the interval holds all of them: whole model of squeezenet1_1 "
        "(16.4 ms, 8.19 ms, 7.03 ms, 6.66 ms; it counts as 8.91 ms)."
    ]
    assert compare(found)["end_to_end_flags"] == ["runs_disagree"]
    assert (found.end_to_end_time.low, found.end_to_end_time.high) == (6.66e-3, 16.4e-3)
    agreeing = estimate(model, *found.end_to_end[1:], variation=0.05)
    for each in (agreeing, one_off(model, variation=0.2)):
        assert told(each) == compare(each)["end_to_end_flags"] == []


def test_disturbed_runs_of_a_whole_model_are_left_out_if_others_are_not(model):
    clean = one_off(model).end_to_end[1:]
    disturbed = {**one_off(model).end_to_end[0], "flags": ["disturbed"]}
    found = estimate(model, disturbed, *clean, variation=0.05)
    expected, compared = compare(estimate(model, *clean, variation=0.05)), compare(found)
    for name in (*TIME.of("end_to_end").names, "in_context_time_s", "clocked_time_s"):
        assert compared[name] == expected[name]
    assert (compared["end_to_end_measurements"], compared["end_to_end_flags"]) == (3, [])
    assert told(found) == [
        "Left out, as these runs were disturbed and others not: whole model of squeezenet1_1 "
        "(16.4 ms; it counts as 7.27 ms) (opcost retry --flag disturbed measures them again)."
    ]
    alone = estimate(model, *({**each, "flags": ["disturbed"]} for each in clean), variation=0.05)
    assert compare(alone)["end_to_end_time_s"] == expected["end_to_end_time_s"]
    assert compare(alone)["end_to_end_flags"] == ["disturbed"]
    assert told(alone) == []


@pytest.mark.parametrize("flags", [["disturbed"], []])
def test_runs_that_cannot_be_compared_are_not_told(model, flags):
    first, *others = one_off(model).end_to_end
    odd = {**first, "flags": flags, "device_name": "another"}
    found = estimate(model, odd, *others, variation=0.05)
    assert compare(found)["end_to_end_time_s"] is None
    assert told(found) == []


def test_what_only_a_disturbed_run_has_is_taken_from_it(model):
    first, *others = one_off(model).end_to_end
    energy = {"energy_j": 1.0, "energy_ci_low_j": 0.9, "energy_ci_high_j": 1.1}
    none = {**dict.fromkeys([*energy, *CALL_TIME.names]), "energy_reason": "simulated: no reading"}
    disturbed = {**first, **energy, "energy_reason": None, "flags": ["disturbed"]}
    found = compare(estimate(model, disturbed, *({**each, **none} for each in others)))
    assert found["end_to_end_measurements"] == 3
    assert found["end_to_end_energy_j"] == 1.0
    assert found["in_context_time_s"] is not None


def test_a_common_speed_does_not_make_the_time_between_calls_uncertain(model):
    kernels = sum(count for _, count in model.kernels())
    wholes = [whole(model, 0.9 * s / kernels, s) for s in (0.08, 0.1, 0.12)]
    found = estimate(model, *wholes, variation=0.02)
    between = between_calls(compare(found))
    whole_s = found.end_to_end_time
    assert between.value == pytest.approx(0.1 * whole_s.value)
    assert 0.1 * whole_s.half_width < between.half_width < 0.3 * whole_s.half_width


def test_the_time_between_calls_that_may_be_zero_is_said_to_be(model):
    kernels = sum(count for _, count in model.kernels())
    found = estimate(model, whole(model, 0.1 / kernels, 0.10003))
    assert profiled(found, "operator")[-2]["in context"] == "0 ± 1.0 ms"


def test_modules_have_the_time_of_their_calls_in_place(model):
    modules = estimate(model, whole(model, 1e-3, 0.1)).modules()
    assert sum(each["in_context_time_s"] for each in modules) == pytest.approx(
        1e-3 * len(model.calls)
    )


def test_views_of_a_device_may_differ(model):
    ids = ids_of(model)
    dropout = next(
        number for number, call in enumerate(model.calls) if not launches(model, call.position)
    )
    other = whole(model, 1e-3, 0.1, call_tuple_id=[*ids[:dropout], "other", *ids[dropout + 1 :]])
    found = estimate(model, other).in_context
    assert found.reason is None
    assert found.by_call_s[dropout] == 0.0
    kernels = sum(count for _, count in model.kernels())
    assert sum(found.by_call_s) == pytest.approx(1e-3 * kernels)


def launches(model, position):
    return model.tuples[position].launches_kernel


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"call_tuple_id": None, "call_time_s": None}, "its calls were not timed"),
        ({"call_time_s": None, "in_context_reason": VARYING}, VARYING),
    ],
)
def test_without_times_in_place_there_is_a_reason(changes, reason, model):
    columns = compare(estimate(model, whole(model, 1e-3, 0.1, **changes)))
    assert columns["in_context_time_s"] is None
    assert columns["between_calls_time_s"] is None
    assert reason in columns["in_context_reason"]


def far_off(model, factor, whole_s=0.1, isolated_s=1e-3, most=1):
    """What the caveats say if the first calls take another time in context than isolated."""
    kernels = [number for number, call in enumerate(model.calls) if launches(model, call.position)]
    firsts = {ids_of(model)[number]: None for number in kernels}
    changed = list(firsts)[:most]
    value_s = [isolated_s * (factor if each in changed else 1) for each in ids_of(model)]
    times = [[limit * each_s for each_s in value_s] for limit in (1, 0.99, 1.01)]
    columns = dict(zip(CALL_TIME.names, times, strict=True))
    seconds = {f"time{limit}_s": isolated_s * f for limit, f in LIMITS.items()}
    found = estimate(model, whole(model, 1e-3, whole_s, **columns), **seconds)
    compared = {"model": "squeezenet1_1", **compare(found)}
    said = caveats([compared], in_context=found.in_context.rows())
    return [text for text in said if "part of the estimate" in text]


LIMITS = {"": 1.0, "_ci_low": 0.99, "_ci_high": 1.01}


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (
            3.1,
            "takes 3.1 times as long in the model (3.1 ms) as isolated (1.0 ms): its part of the "
            "estimate is too small.",
        ),
        (
            0.3,
            "takes 0.30 times as long in the model (300 µs) as isolated (1.0 ms): its part of "
            "the estimate is too large.",
        ),
        (1.9, None),
        (2.01, None),  # within noise
        (0.6, None),
    ],
)
def test_an_operator_whose_part_of_the_estimate_is_far_off_is_named(model, factor, text):
    said = far_off(model, factor, whole_s=0.03)
    assert [each.partition(") takes ")[2] for each in said] == ([] if text is None else [text[6:]])
    assert all(each.startswith("conv2d(1x3x32x32, 64x3x3x3") for each in said)


def test_what_matters_little_to_the_model_or_is_call_overhead_is_not_far_off(model):
    assert far_off(model, 3.1, whole_s=0.2) == []
    assert far_off(model, 3.1, whole_s=4e-4, isolated_s=4e-6) == []  # a call has 10 us of overhead
    assert far_off(model, 10, whole_s=4e-4, isolated_s=4e-6) != []


def test_three_operators_that_are_far_off_are_named_and_others_counted(model):
    [text] = far_off(model, 5, whole_s=0.05, most=6)
    assert text.count("as isolated") == 3
    assert text.endswith("; 3 others alike.")


def test_times_of_other_calls_are_not_taken_for_those_of_the_model(model):
    ids = ids_of(model)
    found = estimate(model, whole(model, 1e-3, 0.1, call_tuple_id=[*ids[1:], ids[0]])).in_context
    assert found.operators is None
    assert found.rows() == []
    assert "made other calls than were recorded or extracted" in found.reason


def profiled(found, kind, most=1000):
    return context_cells(found, compare(found), kind, most)


def percent(cell):
    return float(cell["share"].removesuffix("%"))


@pytest.mark.parametrize("kind", GROUPINGS)
@pytest.mark.parametrize("most", [3, 1000])
@pytest.mark.parametrize("whole_s", [0.2, 0.05])
def test_the_rows_of_each_table_add_up_to_the_whole_model(model, kind, most, whole_s):
    found = estimate(model, whole(model, 1e-3, whole_s))
    *parts, total = profiled(found, kind, most)
    assert sum(map(percent, parts)) == pytest.approx(100.0)
    first = next(iter(total))
    assert (total[first], total["share"]) == ("(end to end)", "100.0%")
    kernels = sum(count for _, count in model.kernels())
    between = parts[-1]
    assert between[first] == "(between calls)"
    assert percent(between) == pytest.approx(100 * (1 - kernels * 1e-3 / whole_s), abs=0.1)
    shown = len(parts) - 1
    assert shown == most + 1 if most == 3 else shown > 3


def test_modules_and_calls_have_intervals(model):
    found = estimate(model, whole(model, 1e-3, 0.1))
    assert len(found.in_context.groups("call")) == found.calls
    for kind in ("module", "call"):
        for group in found.in_context.groups(kind):
            in_context = found.in_context.in_context(group.numbers)
            assert in_context.low < in_context.value < in_context.high
    [first, *_] = profiled(found, "call")
    assert (first["module"], first["isolated"]) == ("features.0", "1.00 ms ± 1.0%")
    assert first["relative"] == "+0.0% ± 1.7%"


def test_an_operator_that_is_not_measured_alone_is_listed_by_what_it_takes_in_place(model):
    rows = {
        tuple_id: row(tuple_id=tuple_id, core_cache_bytes=2**40, **OVERHEAD)
        for tuple_id, record in model.by_id.items()
        if record.operator_tuple.name != "conv2d"
    }
    terms = terms_of(model, rows, set())
    found = ModelEstimate(model, terms, [whole(model, 1e-3, 0.1)], noise())
    *cells, _, total = profiled(found, "operator")
    [convolution] = [each for each in cells if each["operator"] == "conv2d"]
    assert (convolution["calls"], convolution["in context"][:7]) == ("26", "26.0 ms")
    assert {convolution[each] for each in ("isolated", "relative", "difference")} == {"-"}
    assert (total["isolated"], total["difference"]) == ("-", "-")


def test_tuples_whose_descriptions_are_cut_to_the_same_text_are_told_apart(model):
    found = estimate(model, whole(model, 1e-3, 0.1))
    names = [(each["tuple"], each["id"]) for each in profiled(found, "tuple")]
    assert len(names) == len({*names}) == len(model.kernels()) + 2


@pytest.mark.parametrize(
    ("value_s", "half_s", "text"),
    [
        (3e-5, 8.2e-4, "0 ± 800 µs"),
        (-5.4e-4, 8.2e-4, "-500 µs ± 800 µs"),
        (2.04e-3, 1.24e-3, "2.0 ms ± 1.2 ms"),
        (0.123, 4e-3, "123 ms ± 4 ms"),
    ],
)
def test_a_value_that_may_be_zero_has_its_interval_in_the_same_unit(value_s, half_s, text):
    assert with_margin(Estimate(value_s, value_s - half_s, value_s + half_s), seconds) == text


def test_a_value_of_which_its_error_leaves_no_digit_is_zero():
    assert without_interval(4e-5, 8e-4, seconds) == "0"
    assert without_interval(9e-5, 8e-4, seconds) == "90 µs"


def test_what_is_between_the_calls_has_an_interval(model):
    found = estimate(model, whole(model, 1e-3, 0.1234567))
    between = profiled(found, "operator")[-2]
    # The share of the operators, 64 ms, is known to 1 %, and the rest as well as the whole model.
    assert between["in context"] == "59.5 ms ± 900 µs"


def test_rows_of_a_training_step_are_told_apart_by_phase(tmp_path):
    step = {"mode": "training", "loss": "cross_entropy", "optimizer": "SGD"}
    targets = [{"shape": [1], "dtype": "int64", "high": 1000}]
    config = {"model": "squeezenet1_1", "inputs": [{"shape": [1, 3, 32, 32]}], "targets": targets}
    [definition] = define_models("net", config | step, Path(), "net.yaml").models.values()
    path = tmp_path / "net-0.pkl"  # by an interpreter of its own: this one may have run backward
    extract = [sys.executable, "-m", "opcost.jobs", "extract", path, "--search-path", tmp_path]
    subprocess.run([*extract, "--definition", definition.to_json()], check=True)
    trained = read_model_tuples(path)
    overhead = {name: 1e-5 for each in [*OVERHEADS.values()][3:] for name in each.names}
    phases = {name: None for each in PHASE_TIMES.values() for name in each.names}
    found = estimate(trained, whole(trained, 1e-3, 1.0, **phases), **overhead)
    *modules, _, _ = profiled(found, "module")
    places = [(each["module"], each["class"], each["phase"]) for each in modules]
    assert len(places) == len({*places})
    assert {"forward", "loss", "backward", "optimizer"} == {phase for _, _, phase in places}
    *operators, _, _ = profiled(found, "operator")
    names = [each["operator"] for each in operators]
    assert len(names) == len({*names})
