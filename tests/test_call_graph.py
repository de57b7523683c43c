"""A graph has the modules and operators of a model by nesting; costs add up to the estimate."""

import json
import math
import re

import pytest
from click.testing import CliRunner
from opcost.commands import main
from opcost.costs.call_graph import write_graph
from opcost.costs.explanation import explain

from tests.checkout import STUDY
from tests.comparisons import database, launched_in

CNN = str(STUDY / "models" / "tiny_cnn.yaml")
ENERGY = {"power_w": 20.0, "energy_j": 2e-2, "energy_reason": None}


@pytest.fixture
def cnn(tiny_tuples):
    return tiny_tuples[1]


@pytest.fixture
def graph_of(cnn, tmp_path):
    """The explanation of tiny_cnn with these columns of its rows, and its graph as JSON."""

    def graph(**columns):
        [explanation] = explain(cnn, [database(tmp_path / "d.parquet", [cnn], **columns)])
        write_graph(explanation, tmp_path / "cnn.graph.json")
        return explanation, json.loads((tmp_path / "cnn.graph.json").read_text())

    return graph


def inner(nodes):
    return [node for node in nodes if node["id"] not in {each["inside"] for each in nodes}]


@pytest.mark.parametrize("columns", [ENERGY, launched_in(2e-3, **ENERGY, idle_power_w=5.0)])
def test_each_node_has_the_cost_of_what_is_inside_it(graph_of, columns):
    explanation, document = graph_of(**columns)
    nodes, estimate = document["nodes"], explanation.estimate
    for node in nodes:
        children = [each for each in nodes if each["inside"] == node["id"]]
        for name in ("calls", "time_s", "energy_j"):
            if children:
                total = math.fsum(each[name] for each in children)
                assert node[name] == pytest.approx(total), (node, name)
    assert nodes[0]["time_s"] == pytest.approx(estimate.time.value)
    assert nodes[0]["energy_j"] == pytest.approx(estimate.energy.value)
    assert nodes[0]["calls"] == len(estimate.model.calls)


def test_modules_and_operators_are_in_the_order_of_their_first_call(graph_of, cnn):
    _, document = graph_of()
    modules = [node["name"] for node in document["nodes"] if node["kind"] == "module"]
    called = dict.fromkeys(call.module_path for call in cnn.calls if call.module_path)
    assert [path for path in modules if path in called] == [*called]
    operators = {node["name"] for node in inner(document["nodes"])}
    assert operators == {cnn.tuples[each.position].operator_tuple.name for each in cnn.calls}


def test_unknown_energy_is_null_and_the_graph_says_what_it_is(graph_of):
    _, document = graph_of()
    assert {node["energy_j"] for node in document["nodes"]} == {None}
    assert "no data flow" in document["graph"]
    assert (document["model"], document["target"]) == ("tiny_cnn", "local")
    assert "estimate" in document["what"]


def test_dot_has_a_node_and_an_edge_for_each_of_json(cnn, graph_of, tmp_path):
    _, document = graph_of(**ENERGY)
    path, output = tmp_path / "d.parquet", tmp_path / "cnn.dot"
    answer = CliRunner().invoke(main, ["export", CNN, str(output), "--database", str(path)])
    assert answer.exit_code == 0, answer.output
    assert f"To draw them: dot -Tsvg -O {output}" in answer.output
    begin, _, *lines, end = output.read_text().splitlines()
    assert (begin, end) == ('digraph "tiny_cnn" {', "}")
    edges = [tuple(map(int, found.groups())) for line in lines if (found := EDGE.fullmatch(line))]
    assert edges == [(each["inside"], each["id"]) for each in document["nodes"][1:]]
    labels = {int(found[1]): found[2] for line in lines if (found := NODE.fullmatch(line))}
    assert len(labels) + len(edges) == len(lines)
    for node in document["nodes"]:
        assert node["name"].rpartition(".")[2] in labels[node["id"]]
        assert labels[node["id"]].endswith("J")


EDGE = re.compile(r"  (\d+) -> (\d+);")
NODE = re.compile(r'  (\d+) \[label="((?:[^"\\]|\\.)*)"\];')
