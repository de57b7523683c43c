"""A trace has a model's calls in order, in their modules, and takes as long as the estimate."""

import dataclasses
import json
import math
from collections import defaultdict

import jsonschema
import opcost
import pytest
from click.testing import CliRunner
from opcost.commands import main
from opcost.costs.explanation import explain
from opcost.costs.trace import write_trace
from opcost.models.configs import load_model
from opcost.tuples.extraction import extract_model_tuples

from tests.checkout import STUDY
from tests.comparisons import database, launched_in
from tests.documents import ROOT

CNN = str(STUDY / "models" / "tiny_cnn.yaml")
SCHEMA = json.loads((ROOT / "tests/speedscope.schema.json").read_text())
ENERGY = {"power_w": 20.0, "energy_j": 2e-2, "energy_reason": None}
NEGATIVE = {f"view_call_overhead{limit}_s": -1e-4 for limit in ("", "_ci_low", "_ci_high")}
ENDINGS = ["speedscope.json", "perfetto.json"]


@pytest.fixture
def cnn(tiny_tuples):
    return tiny_tuples[1]


def begins_and_ends(document):
    """Whether a slice begins, when, its name, and in Perfetto's format its arguments."""
    if "profiles" in document:
        jsonschema.validate(document, SCHEMA)
        [profile] = document["profiles"]
        names = [frame["name"] for frame in document["shared"]["frames"]]
        assert profile["startValue"] == 0
        assert profile["endValue"] == profile["events"][-1]["at"]
        return [(e["type"] == "O", e["at"], names[e["frame"]], {}) for e in profile["events"]]
    return [
        (e["ph"] == "B", 1e-6 * e["ts"], e["name"], e.get("args"))
        for e in document["traceEvents"]
        if e["ph"] in "BE"
    ]


def slices(explanation, path):
    """The names around each slice and its own, its seconds and its arguments, by its begin."""
    write_trace(explanation, path)
    found, opened, last_s = [], [], 0.0
    for begins, at_s, name, arguments in begins_and_ends(json.loads(path.read_text())):
        assert at_s >= last_s
        last_s = at_s
        if begins:
            names = (*opened[-1][0], name) if opened else (name,)
            opened.append([names, at_s, arguments])
            found.append(opened[-1])
        else:
            names, begin_s, arguments = ended = opened.pop()
            assert names[-1] == name
            ended[1] = at_s - begin_s
    assert not opened
    return found


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("changes", [{}, NEGATIVE])
def test_a_trace_takes_as_long_as_the_estimate_in_each_module(cnn, tmp_path, ending, changes):
    [explanation] = explain(cnn, [database(tmp_path / "d.parquet", [cnn], **changes)])
    root, *others = slices(explanation, tmp_path / f"out.{ending}")
    total_s = explanation.estimate.time.value
    assert root[:2] == [("tiny_cnn",), pytest.approx(total_s, rel=1e-9)]
    depth = {names[:-1] for names, *_ in others}
    leaves = [(names, time_s) for names, time_s, _ in others if names not in depth]
    assert math.fsum(time_s for _, time_s in leaves) == pytest.approx(total_s, rel=1e-9)
    called = [cnn.tuples[call.position].operator_tuple for call in cnn.calls]
    names = [each.name if ending == "perfetto.json" else str(each) for each in called]
    assert [leaf[-1] for leaf, _ in leaves] == names
    if not changes:
        by_module = defaultdict(float)
        for around, time_s in leaves:
            by_module[around[-2].partition(" ")[0]] += time_s
        assert by_module == {
            row["module_path"] or "tiny_cnn": pytest.approx(row["time_s"] + row["overhead_time_s"])
            for row in explanation.modules()
        }


def test_perfetto_shows_of_each_call_what_it_is_and_costs(cnn, tmp_path):
    path = database(tmp_path / "d.parquet", [cnn], **ENERGY)
    [explanation] = explain(cnn, [path])
    found = slices(explanation, tmp_path / "out.json")
    calls = [arguments for *_, arguments in found if "tuple_id" in arguments]
    for call, arguments in zip(cnn.calls, calls, strict=True):
        record = cnn.tuples[call.position]
        assert arguments["description"] == str(record.operator_tuple)
        assert arguments["module"] == call.module_path
        assert (arguments["flops"], arguments["bytes"]) == (record.flops, record.bytes)
    for quantity in ("time_s", "energy_j"):
        total = getattr(explanation.estimate, quantity.partition("_")[0]).value
        assert math.fsum(call[quantity] for call in calls) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("ending", ENDINGS)
def test_on_a_gpu_the_wait_for_the_host_is_a_slice_of_no_module(cnn, tmp_path, ending):
    columns = launched_in(2e-3, **ENERGY, idle_power_w=5.0)
    [explanation] = explain(cnn, [database(tmp_path / "d.parquet", [cnn], **columns)])
    estimate = explanation.estimate
    *others, (names, time_s, arguments) = slices(explanation, tmp_path / f"out.{ending}")
    assert names == ("tiny_cnn", "wait for the host")
    assert time_s == pytest.approx(estimate.iteration.idle.value, rel=1e-9)
    assert others[0][1] == pytest.approx(estimate.time.value, rel=1e-9)
    if arguments:
        energies = [arguments.get("energy_j", 0.0) for *_, arguments in others]
        energy_j = math.fsum([*energies, arguments["energy_j"]])
        assert energy_j == pytest.approx(estimate.energy.value, rel=1e-9)


def test_a_training_step_is_divided_into_its_phases(tmp_path):
    folder = STUDY / "models"
    step = extract_model_tuples(load_model("tiny_training", folder), folder)
    columns = launched_in(1e-5, cold_call_overhead_s=None)
    [explanation] = explain(step, [database(tmp_path / "d.parquet", [step], **columns)])
    found = slices(explanation, tmp_path / "out.json")
    phases = [*dict.fromkeys(names[1] for names, *_ in found[1:])]
    assert phases == ["forward", "loss", "backward", "optimizer"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_trace_says_that_it_is_an_estimate_and_of_what(cnn, tmp_path, ending):
    path = database(tmp_path / "d.parquet", [cnn])
    answer = CliRunner().invoke(
        main, ["export", CNN, str(tmp_path / f"out.{ending}"), "--database", str(path)]
    )
    assert answer.exit_code == 0, answer.output
    document = json.loads((tmp_path / f"out.{ending}").read_text())
    said = document["opcost" if "profiles" in document else "otherData"]
    assert "estimate" in said["what"]
    assert "estimate" in (document.get("name") or document["traceEvents"][0]["args"]["name"])
    assert (said["model"], said["inputs"], said["target"]) == ("tiny_cnn", "1x3x8x8", "local")
    assert (said["opcost_version"], said["database"]) == (opcost.__version__, str(path))
    assert (said["device_name"], said["conditions"]["cache_state"]) == ("Simulated", "cold")
    assert said["energy_reason"] == "simulated: no meter"
    assert f"{said['estimate_time_s'] * 1e3:.4g} ms on local" in answer.output


def test_a_trace_is_of_one_target_that_has_all_operators(cnn, tmp_path):
    without = database(tmp_path / "without.parquet", [cnn], "old", without=["relu"])
    output = tmp_path / "out.json"

    def refused(*options):
        answer = CliRunner().invoke(main, ["export", CNN, str(output), *map(str, options)])
        assert (answer.exit_code, output.exists()) == (1, False), answer.output
        return answer.stderr

    said = refused("--database", without)
    assert "no time on target old: 1 of 3 operator tuples is not measured: relu(1x3x8x8)" in said
    assert f"opcost run {CNN}" in said
    both = database(tmp_path / "both.parquet", [cnn], "here", "there")
    assert "--target here or --target there" in refused("--database", both, "--database", without)
    one = ["export", CNN, str(output), "--database", str(both), "--target", "there"]
    assert CliRunner().invoke(main, one).exit_code == 0


def test_options_of_a_trace_are_refused_for_a_table(cnn, tmp_path):
    path = str(database(tmp_path / "d.parquet", [cnn]))
    answer = CliRunner().invoke(main, ["export", path, "out.csv", "--target", "local"])
    assert answer.exit_code == 2
    assert "--target is for a trace" in answer.output


def test_names_in_a_trace_may_be_of_any_characters(cnn, tmp_path):
    odd = dataclasses.replace(cnn, model='<b>"\\é\u202e', definition=None)
    [explanation] = explain(odd, [database(tmp_path / "d.parquet", [odd])])
    for ending in ENDINGS:
        assert slices(explanation, tmp_path / f"out.{ending}")[0][0] == (odd.model,)
