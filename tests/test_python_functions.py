"""`import opcost`: what a program or a notebook gets from one call."""

import doctest
import json
import math
import pydoc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import opcost
import pandas as pd
import pytest
import torch
from opcost.databases.database import REFERENCE
from opcost.errors import OpcostError
from opcost.models.configs import define_models
from opcost.tuples.extraction import extract_model_tuples
from torch import nn

from tests.test_explanation import database

NOTEBOOK = Path(__file__).parents[1] / "docs" / "opcost.ipynb"
[SHIPPED] = REFERENCE.glob("xeon_*.parquet")


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, batch, mask=None, scale=1.0):
        found = self.linear(batch["x"]) * scale
        return found if mask is None else found.masked_fill(mask, 0.0)


@pytest.fixture
def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU())


def of(model, path, *inputs, **more):
    """The cost of a model all of whose operators are in a database at this path."""
    found = opcost.explain(model, *inputs, database=SHIPPED, **more)
    database(path, [found.model])
    return opcost.explain(found.model, database=path)


def test_a_name_is_enough():
    cost = opcost.explain("alexnet", database=str(SHIPPED))
    assert cost.time.low < cost.time.value < cost.time.high
    assert cost.energy is None
    assert "no energy sensor" in cost.energy_reason
    assert (cost.reason, cost.end_to_end_time, cost.model_error) == (None, None, None)
    assert repr(cost).startswith("<opcost alexnet: ")
    assert str(cost).startswith("alexnet on 1x3x224x224")


def test_a_module_is_explained_with_its_inputs_and_left_alone(net, tmp_path):
    net.train()
    before = [parameter.clone() for parameter in net.parameters()]
    cost = of(net, tmp_path / "d.parquet", torch.randn(4, 8))
    assert {"linear", "relu"} <= set(cost.operators["operator"])
    assert net.training
    assert all(map(torch.equal, before, net.parameters()))


def test_a_module_under_autocast_is_labelled_and_makes_the_calls_of_its_config(net, tmp_path):
    with torch.autocast("cpu", torch.bfloat16):
        cost = of(net, tmp_path / "d.parquet", torch.randn(4, 8))
    assert str(cost).startswith("Sequential on 4x8, float32, autocast bfloat16: ")
    (tmp_path / "nets.py").write_text(
        "from torch import nn\ndef build(): return nn.Sequential(nn.Linear(8, 16), nn.ReLU())\n"
    )
    config = {"factory": "nets:build", "autocast": "bfloat16", "inputs": [{"shape": [4, 8]}]}
    definition = define_models("net", config, tmp_path, "net.yaml").models["net"]
    expected = extract_model_tuples(definition, tmp_path)
    assert (cost.model.tuples, cost.model.calls) == (expected.tuples, expected.calls)


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_autocast_for_another_device_leaves_a_module_as_it_is(net):
    with torch.autocast("cuda", torch.float16):
        cost = opcost.explain(net, torch.randn(4, 8), database=SHIPPED)
    assert str(cost).startswith("Sequential on 4x8, float32: ")


@pytest.mark.parametrize("function", [opcost.explain, opcost.run])
def test_a_name_has_the_precision_of_its_config_and_no_autocast_around_it(function):
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(OpcostError, match="autocast is active for cpu, and alexnet is given by"),
    ):
        function("alexnet")


def test_a_single_tensor_is_one_argument_and_not_a_batch_of_them(net):
    alone = opcost.explain(net, torch.randn(4, 8), database=SHIPPED)
    listed = opcost.explain(net, (torch.randn(4, 8),), database=SHIPPED)
    assert alone.model.by_id == listed.model.by_id


def test_keyword_arguments_and_dicts_are_passed_on():
    batch = {"x": torch.randn(2, 8)}
    plain = opcost.explain(Masked(), (batch,), database=SHIPPED)
    mask = torch.zeros(2, 4, dtype=torch.bool)
    masked = opcost.explain(Masked(), (batch,), {"mask": mask, "scale": 2.0}, database=SHIPPED)
    added = set(masked.tuples["operator"]) - set(plain.tuples["operator"])
    assert added == {"aten.masked_fill.Scalar"}


def test_explanations_in_threads_are_those_of_one_thread_and_change_nothing_for_others():
    models = [nn.Sequential(*(nn.Linear(8, 8) for _ in range(size))) for size in (1, 5, 20)]
    asked = [(model, torch.ones(2, 8)) for model in models] + [("alexnet", ())]
    before, over = threading.Thread.start, threading.Event()
    uninitialised = []

    def build_and_run():
        with torch.inference_mode():
            while not over.is_set():
                module = nn.Sequential(nn.Linear(4, 4))
                nn.init.ones_(module[0].weight)
                module.load_state_dict(
                    {"0.weight": torch.full((4, 4), 2.0), "0.bias": torch.ones(4)}
                )
                uninitialised.append(module(torch.ones(1, 4)).tolist() != [[9.0] * 4])

    def calls(arguments):
        found = opcost.explain(*arguments, database=SHIPPED).model
        return [
            (found.tuples[call.position].operator_tuple, call.module_path) for call in found.calls
        ]

    alone = [*map(calls, asked)]
    other = threading.Thread(target=build_and_run)
    other.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            assert [*pool.map(calls, asked * 2)] == alone * 2
    finally:
        over.set()
        other.join()
    assert threading.Thread.start == before
    assert not any(uninitialised)


def test_operators_and_modules_are_tables_that_add_up(tmp_path):
    cost = of("resnet18", tmp_path / "d.parquet", "1x3x32x32")
    assert cost.operators["share"].sum() == pytest.approx(1.0)
    assert cost.operators["time_s"].sum() == pytest.approx(cost.time.value)
    assert "call overhead" in set(cost.operators["operator"])
    root = cost.modules[cost.modules["depth"] == 0].iloc[0]
    assert root["time_s"] == pytest.approx(cost.time.value)
    children = cost.modules[cost.modules["depth"] == 1]
    assert {"layer1", "layer4", "fc"} <= set(children["module"])
    assert math.fsum(children["time_s"]) == pytest.approx(cost.time.value, rel=0.02)


def test_what_is_missing_is_a_table_and_a_reason(net):
    cost = opcost.explain(net, torch.randn(4, 8), database=SHIPPED, predict=False)
    assert cost.time is None
    assert "2 of 2 operator tuples are not measured" in cost.reason
    assert list(cost.missing["description"]) == ["linear(4x8, 16x8, 16)", "relu(4x16)"]
    assert "no time on" in repr(cost)
    assert cost._repr_html_()
    assert list(cost.modules["parameters"]) == [144, 144, 0]
    assert list(cost.modules["flops"]) == [1024, 1024, 0]  # 4 x 8 x 16 x 2
    assert cost.modules["time_s"].isna().all()


def test_a_notebook_shows_a_table_and_no_markup_of_others(tmp_path):
    cost = of("resnet18", tmp_path / "d.parquet", "1x3x32x32")
    assert "<table" in cost._repr_html_()
    assert "conv2d" in cost._repr_html_()


def test_the_target_with_the_most_measured_operators_is_chosen(net, tmp_path):
    cost = of(net, tmp_path / "d.parquet", torch.randn(4, 8))
    both = opcost.explain(cost.model, database=[SHIPPED, tmp_path / "d.parquet"])
    assert (both.target, both.database) == ("local", str(tmp_path / "d.parquet"))
    assert list(both.targets["chosen"]) == [False, True]
    with pytest.raises(OpcostError, match="no database has a target 'h100'"):
        opcost.explain(cost.model, database=SHIPPED, target="h100")


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (3, (), "model is a int; allowed: an instance of nn.Module, a name or path"),
        ("alexnet", torch.randn(1, 3, 224, 224), "give its sizes as a string"),
        ("alexnit", (), "Did you mean"),
        (nn.Linear(8, 4), torch.randn(2, 3), "cannot run on inputs of shape"),
        (nn.Linear(8, 4), (), "cannot run on inputs without tensors: in Linear: .* missing 1"),
        (nn.Linear(8, 4), {"input": 1}, "the inputs are of type dict: .* as kwargs"),
        (nn.Linear, (), "allowed: an instance of nn.Module"),
    ],
)
def test_what_cannot_be_explained_is_said(model, inputs, message):
    with pytest.raises(OpcostError, match=message):
        opcost.explain(model, inputs, database=SHIPPED)


def test_help_shows_the_functions():
    text = pydoc.plain(pydoc.render_doc(opcost))
    assert all(f"{name}(" in text for name in opcost.__all__)


@pytest.mark.parametrize("documented", [opcost, opcost.explain])
def test_the_examples_of_help_run(documented):
    names = {"torch": torch, "opcost": opcost}
    examples = doctest.DocTestParser().get_examples(documented.__doc__)
    assert examples
    for example in examples:
        exec(compile(example.source, "help", "exec"), names)


def test_import_needs_no_torch():
    code = "import sys, opcost; assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) == 10
    names = {}
    for cell in code:
        exec(compile(cell, str(NOTEBOOK), "exec"), names)
    assert isinstance(names["cost"].operators, pd.DataFrame)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; allowed: an integer from 1"),
        ({"batch_size": "8"}, "batch_size is '8'"),
        ({"batch_size": 8}, "a module and its tensors have a batch size and a dtype"),
        ({"dtype": "bfloat16"}, "a module and its tensors have a batch size and a dtype"),
        ({"database": []}, "no database is given"),
    ],
)
def test_what_would_be_ignored_is_refused(given, message):
    with pytest.raises(OpcostError, match=message):
        opcost.explain(nn.ReLU(), torch.ones(2, 8), **given)


def test_a_module_without_operators_misses_none():
    cost = opcost.explain(nn.Identity(), torch.ones(1))
    assert cost.missing.empty
    assert "status" in cost.tuples.columns
