"""A model's launch modes stand beside the sum over its operators."""

import itertools
import re
import sys

import pytest
import torch
from opcost.costs.comparison import compare_study
from opcost.costs.launches import launch_lines
from opcost.devices.device import NotCapturable
from opcost.launch_modes import LAUNCH_MODES
from opcost.measuring.benchmark import measure
from opcost.measuring.launch import LAUNCHES, launched
from opcost.measuring.subjects import ModelSubject
from opcost.measuring.workload import ModelWorkload
from opcost.models.definition import InputSpec, ModelDefinition, Training
from opcost.models.inputs import Arguments
from opcost.rows.flags import CALLS_VARY, COMPILED_PARTS
from opcost.rows.quantities import ENERGY, TIME
from opcost.rows.runs import ModelRatio
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.manifest import collect
from opcost.tuples.replay import UnsupportedOperator

from tests.comparisons import FAILED, noise, row
from tests.quick_measurement import QUICK
from tests.stations import station_of


@pytest.fixture
def launches(tiny_tuples):
    """The rows of tiny_cnn: four calls of operators of 1 ms and 50 mJ, 5 ms eager."""
    _, cnn = tiny_tuples

    def launches(ratios=(), **modes):
        rows = [row(power_w=50.0, tuple_id=record.operator_tuple.tuple_id) for record in cnn.tuples]
        whole = row(5e-3, 50.0) | {"model": "tiny_cnn"}
        further = [whole | {"launch_mode": mode} | changes for mode, changes in modes.items()]
        return compare_study(
            {"local": [cnn]},
            rows,
            [whole, *further],
            collect([cnn], None),
            {"local": noise(*ratios)},
        ).launches

    return launches


def test_a_graph_and_a_compiled_model_are_compared_with_the_operators_alone(launches):
    eager, graph, compiled = launches(graph={"time_s": 4e-3}, compiled={"time_s": 3.2e-3})
    modes = [each["launch_mode"] for each in (eager, graph, compiled)]
    assert modes == ["eager", "graph", "compiled"]
    assert eager["time_relative_error"] == pytest.approx(-0.2)
    assert graph["time_relative_error"] == pytest.approx(0)
    assert compiled["time_relative_error"] == pytest.approx(0.25)
    assert graph["estimate_energy_j"] == pytest.approx(4 * 50e-3)
    assert [each["reason"] for each in (eager, graph, compiled)] == [None] * 3


def test_the_interval_of_the_sum_holds_the_model_error_in_every_mode(launches):
    ratios = [ModelRatio(name, False, 0.05, 0.05) for name in ("first", "second", "third")]
    for alone, both in zip(*(launches(each, graph={}) for each in ((), ratios)), strict=True):
        for quantity in (TIME, ENERGY):
            assert half_width(both, quantity) > 0.05 > 2 * half_width(alone, quantity)


def half_width(row, quantity):
    error = quantity.error.read(row)
    return (error.high - error.low) / 2 / (1 + error.value)


def test_a_model_that_cannot_have_a_mode_says_why(launches):
    *_, graph = launches(graph=FAILED | {"status": "unsupported", "error": "cpu has no graphs"})
    assert (graph["time_s"], graph["time_relative_error"]) == (None, None)
    assert graph["reason"] == "unsupported: cpu has no graphs"
    assert launch_lines(launches(graph=FAILED))[-1].endswith("out_of_memory: too large")


def test_rows_of_other_conditions_are_not_compared(launches):
    *_, graph = launches(graph={"torch_version": "2.16.0"})
    assert graph["estimate_time_s"] is None
    assert "torch_version" in graph["reason"]


def test_the_text_says_what_each_mode_saves(launches):
    lines = launch_lines(launches(graph={"time_s": 4e-3}))
    assert re.search(r"graph +4.0\S* ms ± [0-9.]+% +80% +[+-]0", lines[-1])


def test_without_further_modes_there_is_nothing_to_say(launches):
    assert launches() == []
    assert launch_lines([]) == []


def test_every_launch_mode_that_results_have_a_folder_for_can_be_run():
    assert list(LAUNCHES) == list(LAUNCH_MODES)


class Graphs:
    """A device that captures work, or cannot."""

    def __init__(self, fault=None):
        self.fault = fault

    def capture(self, works):
        if self.fault:
            raise NotCapturable(self.fault)
        return list(works)


@pytest.fixture
def workload():
    modules = [torch.nn.Linear(4, 4) for _ in range(3)]
    return ModelWorkload(modules, [Arguments([torch.ones(1, 4)], {})])


def test_a_graph_has_a_replay_for_each_copy_of_the_model(workload):
    graph = launched(workload, Graphs(), "graph")
    graph.run(2)
    assert (graph.rotation, graph.in_use) == (3, True)


def test_a_model_that_cannot_be_captured_is_unsupported(workload):
    with pytest.raises(UnsupportedOperator, match="not captured: it waits"):
        launched(workload, Graphs("not captured: it waits"), "graph")


def test_the_row_of_a_model_that_cannot_be_captured_says_unsupported(cpu):
    definition = ModelDefinition("relu", (InputSpec((4,)),), factory="torch.nn:ReLU")
    subject = ModelSubject(definition)
    subject.launch_mode = "graph"
    row = measure(subject, station_of(cpu, QUICK))
    assert row["status"] == "unsupported"
    assert "graph" in row["error"]


PARTS = """\
import torch
from torch import nn

FUSED = []

def backend(graph, inputs):
    FUSED.append(graph)
    return graph

@torch.compile(backend=backend, fullgraph=True)
def loss(output):
    return output.square().mean()

class Net(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part, self.body, self.head = part, nn.Linear(16, 32), nn.Linear(32, 4)
        if part == "module":
            self.body = torch.compile(self.body, backend=backend)
        if part == "script":
            self.body = torch.jit.script(nn.Sequential(self.body, nn.ReLU()))
        if part == "trace":
            self.body = torch.jit.trace(self.body, torch.randn(8, 16))

    def forward(self, x):
        x = self.body(x)
        if self.part == "lambda":
            x = torch.compile(lambda x: x * x.sigmoid(), backend=backend)(x)
        return self.head(x)
"""
NUMBERS = itertools.count()


@pytest.fixture
def with_parts(tmp_path, monkeypatch):
    """Defines a model of which a part is compiled, and returns the module of its code, too."""
    monkeypatch.chdir(tmp_path)

    def define(part):
        name = f"parts_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(PARTS)
        training = Training(f"{name}:loss", (), optimizer="SGD") if part == "loss" else None
        return ModelDefinition(
            "net",
            (InputSpec((8, 16)),),
            factory=f"{name}:Net",
            arguments={"part": part},
            mode="inference" if training is None else "training",
            training=training,
        )

    return define


@pytest.mark.parametrize("part", ["module", "lambda", "loss"])
def test_compiled_parts_run_eagerly_in_the_estimate_and_end_to_end(part, with_parts, cpu, capsys):
    definition = with_parts(part)
    extracted = extract_model_tuples(definition)
    assert "has parts that torch.compile compiles: they run eagerly" in capsys.readouterr().err
    row = measure(ModelSubject(definition, None, extracted), station_of(cpu, QUICK))
    assert (row["status"], row["differing_calls"]) == ("ok", [])
    assert COMPILED_PARTS in row["flags"]
    assert sys.modules[definition.factory.partition(":")[0]].FUSED == []
    assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)) == 2


@pytest.mark.parametrize("part", ["script", "trace"])
def test_parts_in_torchscript_run_operator_by_operator(part, with_parts, cpu):
    definition = with_parts(part)
    extracted = extract_model_tuples(definition)
    assert sum(record.flops for record in extracted.tuples) == 2 * 8 * 32 * (16 + 4)
    row = measure(ModelSubject(definition, None, extracted), station_of(cpu, QUICK))
    assert (row["status"], row["differing_calls"], CALLS_VARY in row["flags"]) == ("ok", [], False)


def test_a_compiled_part_is_compiled_in_a_compiled_model(with_parts, cpu):
    subject = ModelSubject(with_parts("module"))
    subject.launch_mode = "compiled"
    row = measure(subject, station_of(cpu, QUICK))
    assert (row["status"], COMPILED_PARTS in row["flags"]) == ("ok", False)


@pytest.mark.slow
def test_a_compiled_model_computes_what_the_model_does(workload):
    with torch.inference_mode():
        compiled = launched(workload, Graphs(), "compiled")
        module, (args, kwargs) = compiled._once
        assert torch.allclose(compiled._call(module, *args, **kwargs), module(*args, **kwargs))
    assert compiled.rotation == 3
