"""Operators on the values that they get in a model: its weights, and what its layers compute."""

from dataclasses import replace

import pytest
import torch
import yaml
from opcost.addresses import conditions_address
from opcost.errors import OpcostError
from opcost.measuring import benchmark
from opcost.measuring.subjects import OperatorSubject
from opcost.models.configs import define_models
from opcost.models.construction import build
from opcost.models.inputs import example_inputs
from opcost.models.source import ChangedSource
from opcost.rows.flags import MODEL_VALUES
from opcost.study import Conditions, load_study
from opcost.tuples.extraction import extract_model_tuples

from tests.quick_measurement import QUICK
from tests.stations import station_of

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.first, self.second = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, ids):
        torch.set_num_threads(1)
        return (self.second(self.first(x).relu().mul_(2)) + self.table(ids)).sum()
"""
TARGETS = {"local": {"device": "cpu"}}


@pytest.fixture
def net(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    inputs = [{"shape": [4, 8]}, {"shape": [4], "dtype": "int64", "high": 9}]
    document = {"factory": "net:Net", "inputs": inputs}
    defined = define_models("net", document, tmp_path, "net.yaml").models["net"]
    torch.save(build(defined, tmp_path).state_dict(), tmp_path / "trained.pt")
    document["weights"] = "trained.pt"
    (tmp_path / "net.yaml").write_text(yaml.safe_dump(document))
    return define_models("net", document, tmp_path, "net.yaml").models["net"]


def records_of(definition, folder):
    tuples = extract_model_tuples(definition, folder).tuples
    return {each.operator_tuple.name: each for each in tuples if each.launches_kernel}


def set_up(record, definition, folder, cpu):
    asked = replace(QUICK, operand_values=definition.to_json())
    found = OperatorSubject(record, folder).set_up(station_of(cpu, asked))
    call = found.workload.operands.calls[0]
    return (*call.args, *call.kwargs.values()), found.find_flags()[MODEL_VALUES]


def test_operands_are_those_of_the_first_call_in_the_model(net, tmp_path, cpu):
    record = records_of(net, tmp_path)["linear"]  # of both linear layers
    (data, weight, bias), said = set_up(record, net, tmp_path, cpu)
    module, (x, _) = build(net, tmp_path), example_inputs(net).args
    assert said
    assert torch.equal(data, x)
    assert torch.equal(weight, module.first.weight)
    assert torch.equal(bias, module.first.bias)


def test_floats_are_the_models_in_their_layout_while_indices_are_drawn(net, tmp_path, cpu):
    (weight, ids, *_), said = set_up(records_of(net, tmp_path)["embedding"], net, tmp_path, cpu)
    assert said
    assert torch.equal(weight, build(net, tmp_path).table.weight)
    assert not torch.equal(ids, example_inputs(net).args[1])


@pytest.mark.parametrize("operator", ["mul_", "relu"])
def test_operators_in_place_and_those_that_the_model_does_not_call_keep_random_values(
    net, tmp_path, cpu, operator
):
    record = records_of(net, tmp_path)[operator]
    x, ids = (replace(spec, shape=(2, *spec.shape[1:])) for spec in net.inputs)
    model = net if operator == "mul_" else replace(net, inputs=(x, ids))
    (data, *_), said = set_up(record, model, tmp_path, cpu)
    assert not said
    assert (data < 0).any()


def test_a_row_says_that_it_has_values_of_a_model_and_of_which(net, tmp_path, cpu):
    asked = replace(QUICK, operand_values=net.to_json(), energy=False)
    station = station_of(cpu, asked)
    row = benchmark.measure(OperatorSubject(records_of(net, tmp_path)["relu"], tmp_path), station)
    assert row["status"] == "ok"
    assert MODEL_VALUES in row["flags"]
    stated = Conditions.from_json(row["conditions_json"]).measurement.operand_values
    assert stated == net.to_json()


def test_a_model_that_cannot_run_fails_the_row_with_the_reason(net, tmp_path, cpu):
    subject = OperatorSubject(records_of(net, tmp_path)["linear"], tmp_path)
    wrong = replace(net, inputs=(replace(net.inputs[0], shape=(4, 9)), net.inputs[1]))
    asked = replace(QUICK, operand_values=wrong.to_json())
    row = benchmark.measure(subject, station_of(cpu, asked))
    assert row["status"] == "error"
    assert "model net cannot run on inputs of shape [4, 9], [4]" in row["error"]
    (tmp_path / "trained.pt").unlink()
    with pytest.raises(ChangedSource, match="there is no file"):
        set_up(subject.record, net, tmp_path, cpu)


def study(folder, name):
    settings = {"operand_values": name, "min_time_s": 0.1}
    document = {"models": ["net"], "model_directory": str(folder), "targets": TARGETS}
    return load_study({**document, "measurement": settings})


def test_other_values_are_other_conditions(net, tmp_path):
    def address(name):
        return conditions_address(study(tmp_path, name).conditions["local"], "cpu", {})

    random, trained = address(None), address("net")
    other = torch.load(tmp_path / "trained.pt") | {"first.bias": torch.ones(8)}
    torch.save(other, tmp_path / "trained.pt")
    assert len({random, trained, address("net")}) == 3


def test_values_are_of_a_model_of_the_study(net, tmp_path):
    message = "measurement.operand_values: 'nett' is no model of this study. Did you mean 'net'"
    with pytest.raises(OpcostError, match=message):
        study(tmp_path, "nett")
