"""A database answers what a model costs; what it does not hold is said, and how to measure it."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from opcost.addresses import definition_address
from opcost.commands import INCOMPLETE, main
from opcost.costs.comparison import compare_study
from opcost.costs.estimate_columns import estimate_columns
from opcost.costs.explanation import explain
from opcost.costs.explanation_text import as_text
from opcost.costs.lookup import look_up
from opcost.costs.model_argument import find_model, parse_input, run_command
from opcost.databases.database import read_database
from opcost.databases.merging import merge
from opcost.devices.device_file import DeviceFile, write_device
from opcost.errors import OpcostError
from opcost.models.construction import build
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.models.variants import Options
from opcost.results_folder import (
    MODELS,
    device_file,
    extraction,
    measurement,
    recording,
    target_folder,
)
from opcost.rows import records, schemas
from opcost.rows.runs import noise_of
from opcost.study import Conditions
from opcost.target import Target
from opcost.tuples.extraction import extract_model_tuples, extract_module_tuples
from opcost.tuples.manifest import collect
from opcost.tuples.model_tuples import calls_hash, read_model_tuples, write_model_tuples
from torch import nn

from tests.checkout import STUDY
from tests.comparisons import CONDITIONS, FAILED, database, launched_in, other_models
from tests.quick_measurement import default_measurement

ON_A_GPU = {"device_name": "Other GPU", "device_uuid_hash": "a" * 16}


SLOWER = {"time_s": 2e-3, "time_ci_low_s": 1.98e-3, "time_ci_high_s": 2.02e-3}


@pytest.fixture
def cnn(tiny_tuples):
    return tiny_tuples[1]


def file_of(definition, results, number=1):
    """Of a whole model."""
    folder = target_folder("local", "cpu-0", results)
    return measurement(folder, MODELS, definition_address(definition), number)


def test_a_model_costs_what_the_workflow_says_it_costs(cnn, tiny_tuples, tmp_path):
    path = database(tmp_path / "d.parquet", tiny_tuples)
    [explanation] = explain(cnn, [path])
    whole = dict.fromkeys(schemas.MODEL.names) | CONDITIONS
    whole |= {"model": "tiny_cnn", "target": "local", "status": "ok", "time_s": 5e-3}
    rows = read_database(path).to_pylist()
    [compared], shares, modules, *_ = compare_study(
        {"local": [cnn]}, rows, [whole], collect([cnn], None), {"local": noise_of(rows)}
    )
    for name, value in estimate_columns(explanation.estimate).items():
        assert compared[name] == value, name
    assert compared["estimate_time_s"] > 4e-3
    for found, expected in ((explanation.operators(), shares), (explanation.modules(), modules)):
        for row, in_the_table in zip(found, expected, strict=True):
            assert in_the_table.items() >= row.items()


@pytest.mark.parametrize(
    ("unknown", "expected"),
    [
        ((), "; 23.81 kFLOPs, "),
        (("relu",), "; at least 23.81 kFLOPs (those of relu are unknown), "),
        (("relu", "conv2d", "linear"), "; unknown FLOPs (of conv2d, relu, linear), "),
    ],
)
def test_flops_that_are_unknown_are_no_smaller_sum(cnn, unknown, expected):
    tuples = [
        dataclasses.replace(each, flops=None if each.operator_tuple.name in unknown else each.flops)
        for each in cnn.tuples
    ]
    text = as_text(dataclasses.replace(cnn, tuples=tuple(tuples)), [], 5, None)
    assert expected in " ".join(text.split())


def test_a_product_of_complex_numbers_is_eight_flops():
    class Product(nn.Module):
        def forward(self, x):
            return torch.complex(x, x) @ torch.complex(x, x)

    text = as_text(extract_module_tuples(Product(), [torch.ones(5, 5)], "product"), [], 5, None)
    assert f"; {8 * 5**3 / 1000:g} kFLOPs, " in text
    assert "(1 multiply-add = 2 FLOPs, of complex numbers 8)" in text


@pytest.mark.parametrize(("zoo", "known"), [(True, True), (True, False), (False, False)])
def test_a_model_that_the_study_knows_by_another_name_is_compared_with_its_whole(
    tmp_path, zoo, known
):
    definition = ModelDefinition("mine", (InputSpec((1, 3, 32, 32)),), model="resnet18")
    extracted = extract_model_tuples(dataclasses.replace(definition, name="resnet18", zoo=zoo))
    path = database(tmp_path / "database.parquet", [extracted])
    hashed = calls_hash(extracted.launched()) if known else "0" * 16
    row = {"status": "ok", "time_s": 5e-3, "flags": [], "differing_calls": [], "calls_hash": hashed}
    whole = measurement(
        target_folder("local", "cpu-0", tmp_path), MODELS, definition_address(definition)
    )
    whole.parent.mkdir(parents=True)
    records.write(whole, schemas.MODEL, [CONDITIONS | records.model_columns(definition) | row])
    [explanation] = explain(extracted, [path])
    assert explanation.compared.get("end_to_end_time_s") == (5e-3 if known or not zoo else None)


NETS = """\
import time
from torch import nn

class Sleepy(nn.Linear):
    def forward(self, x):
        time.sleep(0.02)
        return super().forward(x)

def fast():
    return nn.Linear(8, 8)

def slow():
    return Sleepy(8, 8)
"""


def test_the_time_of_a_whole_is_that_of_its_own_code_only(tmp_path):
    """Though the kernels and the inputs of another model are the same."""
    nets, config = tmp_path / "nets.py", tmp_path / "config.yaml"
    nets.write_text(NETS)
    config.write_text("factory: nets.py:fast\ninputs: [{shape: [2, 8]}]\n")

    def explained(name, *inputs):
        definition, folder = find_model(
            f"{nets}:{name}" if inputs else name, Options(inputs=inputs)
        )
        [found] = explain(extract_model_tuples(definition, folder), [path])
        return found.compared.get("end_to_end_time_s")

    measured, _ = find_model(str(config))
    extracted = extract_model_tuples(measured, tmp_path)
    path = database(tmp_path / "database.parquet", [extracted])
    row = {"status": "ok", "time_s": 5e-3, "flags": [], "differing_calls": []}
    row |= {"calls_hash": calls_hash(extracted.launched())}
    whole = measurement(
        target_folder("local", "cpu-0", tmp_path), MODELS, definition_address(measured)
    )
    whole.parent.mkdir(parents=True)
    records.write(whole, schemas.MODEL, [CONDITIONS | records.model_columns(measured) | row])
    spec = InputSpec((2, 8))
    assert explained(str(config)) == 5e-3
    assert explained("fast", spec) == 5e-3
    assert explained("slow", spec) is None
    slow = dataclasses.replace(measured, name="a_slow_one", factory="nets.py:slow")
    columns = CONDITIONS | records.model_columns(slow) | row | {"time_s": 2e-2}
    records.write(whole.with_stem(definition_address(slow)), schemas.MODEL, [columns])
    assert (explained("fast", spec), explained("slow", spec)) == (5e-3, 2e-2)
    nets.write_text(NETS.replace("return nn.Linear(8, 8)", "return Sleepy(8, 8)"))
    assert (explained(str(config)), explained("fast", spec)) == (None, None)


def test_weights_are_those_of_the_study_wherever_its_config_lies(tmp_path):
    """As `opcost run net.yaml` measures the copy of a config in config/models."""
    text = "factory: FOLDERnets.py:fast\ninputs: [{shape: [2, 8]}]\nweights: FOLDERtrained.pt\n"
    config, copied = tmp_path / "net.yaml", tmp_path / "config" / "net.yaml"
    copied.parent.mkdir()
    config.write_text(text.replace("FOLDER", ""))
    copied.write_text(text.replace("FOLDER", "../"))
    (tmp_path / "nets.py").write_text(NETS)

    def explained():
        asked, folder = find_model(str(config))
        [found] = explain(extract_model_tuples(asked, folder), [path])
        return found.compared.get("end_to_end_time_s")

    torch.save(nn.Linear(8, 8).state_dict(), tmp_path / "trained.pt")
    measured, folder = find_model(str(copied))
    extracted = extract_model_tuples(measured, folder)
    path = database(tmp_path / "database.parquet", [extracted])
    row = {"status": "ok", "time_s": 5e-3, "flags": [], "differing_calls": []}
    row |= {"calls_hash": calls_hash(extracted.launched())}
    place = target_folder("local", "cpu-0", tmp_path)
    whole = measurement(place, MODELS, definition_address(measured))
    records.write(whole, schemas.MODEL, [CONDITIONS | records.model_columns(measured) | row])
    assert explained() == 5e-3
    torch.save(nn.Linear(8, 8).state_dict(), tmp_path / "trained.pt")
    assert explained() is None


def test_kernels_that_the_study_saw_differ_on_the_device_leave_no_sum(cnn, tmp_path):
    path = database(tmp_path / "database.parquet", [cnn])
    differing = {
        "status": "ok",
        "time_s": 5e-3,
        "flags": [],
        "differing_calls": ["+2 reshape(4x4)"],
    }
    row = records.model_columns(cnn.definition) | differing
    whole = measurement(
        target_folder("local", "cpu-0", tmp_path), MODELS, definition_address(cnn.definition)
    )
    whole.parent.mkdir(parents=True)
    records.write(whole, schemas.MODEL, [row])
    [explanation] = explain(cnn, [path])
    assert explanation.estimate.time is None
    assert explanation.to_document()["differing_calls"] == ["+2 reshape(4x4)"]
    text = " ".join(as_text(cnn, [explanation], 5, None, details=True).split())
    assert "No time on local: on this device, the model launched other kernels" in text
    assert "(+), or the reverse (-): +2 reshape(4x4)." in text


@pytest.mark.parametrize(("device", "said"), [("cuda", True), ("cpu", False)])
def test_calls_that_nobody_compared_with_those_of_a_gpu_are_said_to_be(cnn, tmp_path, device, said):
    conditions = Conditions(Target(device, 1, False), default_measurement())
    columns = records.condition_columns(conditions, "local")
    path = database(tmp_path / "d.parquet", [cnn], **columns, device=device)
    text = as_text(cnn, explain(cnn, [path]), 5, None)
    assert ("Calls were extracted on a processor" in text) == said


def test_a_model_of_the_study_makes_the_calls_that_its_device_was_recorded_to_make(cnn, tmp_path):
    path = database(tmp_path / "database.parquet", [cnn], **launched_in(1e-4))
    [extracted] = explain(cnn, [path])
    assert extracted.to_document()["calls_unverified"]
    folder = target_folder("local", "cpu-0", tmp_path)
    recording(folder, "tiny_cnn-0").parent.mkdir(parents=True)
    (tmp_path / "tuples").mkdir()
    write_model_tuples(extraction("tiny_cnn-0", tmp_path), cnn)
    there = dataclasses.replace(cnn, calls=cnn.calls[:-1], memory=None, device_name="Card")
    write_model_tuples(recording(folder, "tiny_cnn-0"), there)
    write_device(device_file(folder), DeviceFile("cuda:0", "Card"))
    [explanation] = explain(cnn, [path])
    assert explanation.estimate.calls == extracted.estimate.calls - 1
    assert not explanation.to_document()["calls_unverified"]
    text = as_text(cnn, [explanation], 5, None, details=True)
    assert "Calls recorded on this device, compared with those above: -1 linear(" in text


def test_a_model_that_waits_for_its_host_is_said_to(cnn, tmp_path):
    path = database(tmp_path / "d.parquet", [cnn], **launched_in(2e-3))
    [explanation] = explain(cnn, [path])
    document = explanation.to_document()
    assert document["host_bound_share"] == pytest.approx(0.5, abs=0.01)
    assert document["idle_time_s"] == pytest.approx(4.041e-3)
    text = as_text(cnn, [explanation], top=5, depth=1, details=True)
    assert "tiny_cnn waits for its host 50% of the time: " in text
    assert re.search(r"\nwait for the host +4\.0\d ms +50\.\d%\n", text)


def test_each_call_is_counted_in_the_module_it_happens_in(cnn, tmp_path):
    [explanation] = explain(cnn, [database(tmp_path / "d.parquet", [cnn])])
    by_path = {row["module_path"]: row for row in explanation.modules()}
    assert sum(row["calls"] for row in by_path.values()) == 4
    assert sum(row["time_s"] for row in by_path.values()) == pytest.approx(4e-3)


def test_modules_are_joined_below_a_depth(tmp_path):
    tuples = extract_model_tuples(
        ModelDefinition("resnet18", (InputSpec((1, 3, 32, 32)),), model="resnet18")
    )
    [explanation] = explain(tuples, [database(tmp_path / "d.parquet", [tuples])])
    joined = explanation.modules(depth=1)
    assert "layer1" in {row["module_path"] for row in joined}
    assert not any("." in row["module_path"] for row in joined)
    assert sum(row["calls"] for row in joined) == explanation.estimate.calls
    assert len(explanation.modules(depth=2)) > len(joined)


def test_targets_side_by_side_have_all_parts_of_each(cnn, tmp_path):
    """Also those that only one has, as a wait for the host: each column adds up to its target."""
    waiting = launched_in(2e-3)
    paths = [
        database(tmp_path / "a.parquet", [cnn], "processor"),
        database(tmp_path / "b.parquet", [cnn], "gpu", **waiting),
    ]
    text = as_text(cnn, explain(cnn, paths), 5, None)
    [title] = (line for line in text.splitlines() if line.startswith("where the time goes"))
    assert title.split()[-4:] == ["processor", "time", "gpu", "time"]
    assert re.search(r"\nwait for the host +- +4\.0\d ms\n", text)
    assert re.search(r"\ncall overhead +\S+ .s +-\n", text)


def test_a_whole_that_is_too_noisy_names_what_its_runs_found(cnn, tmp_path):
    path = database(tmp_path / "database.parquet", [cnn])
    for number, time_s in ((1, 0.2e-3), (2, 2e-3)):
        whole = measurement(
            target_folder("local", "cpu-0", tmp_path),
            MODELS,
            definition_address(cnn.definition),
            number,
        )
        whole.parent.mkdir(parents=True)
        limits = {"time_s": time_s, "time_ci_low_s": 0.99 * time_s, "time_ci_high_s": 1.01 * time_s}
        row = CONDITIONS | records.model_columns(cnn.definition) | limits
        row |= {"status": "ok", "flags": [], "differing_calls": []}
        records.write(whole, schemas.MODEL, [row])
    text = as_text(cnn, explain(cnn, [path]), 5, None)
    assert re.search(r"local .* too noisy to say \(2 runs: 200 µs and 2\.00 ms\)", text)
    assert "It narrows with runs on a quiet machine" in " ".join(text.split())


def test_a_database_beside_that_of_a_study_has_nothing_of_what_the_study_measured(cnn, tmp_path):
    own = database(tmp_path / "database.parquet", [cnn])
    whole = measurement(
        target_folder("local", "cpu-0", tmp_path), MODELS, definition_address(cnn.definition), 1
    )
    whole.parent.mkdir(parents=True)
    row = CONDITIONS | records.model_columns(cnn.definition) | {"status": "ok", "flags": []}
    row |= {"time_s": 5e-3, "differing_calls": []}
    records.write(whole, schemas.MODEL, [row])
    foreign = Path(shutil.copy(own, tmp_path / "foreign.parquet"))
    [of_own], [of_foreign] = explain(cnn, [own]), explain(cnn, [foreign])
    assert of_own.compared["end_to_end_time_s"] == pytest.approx(5e-3)
    assert not of_foreign.estimate.end_to_end


def test_a_database_may_lie_in_the_current_folder(cnn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("database.parquet", "mine.parquet"):
        [found] = explain(cnn, [database(Path(name), [cnn])])
        assert found.is_complete


def test_other_conditions_of_a_target_answer_only_where_they_are_named(cnn, tmp_path):
    path = database(tmp_path / "d.parquet", [cnn], "a", "a/cpu-0")
    assert [each.target for each in explain(cnn, [path])] == ["a"]
    assert [each.target for each in explain(cnn, [path], ["a/cpu-0"])] == ["a/cpu-0"]


def test_every_target_is_an_answer_of_its_own(cnn, tmp_path):
    path = database(tmp_path / "d.parquet", [cnn], "a", "b")
    assert [each.target for each in explain(cnn, [path])] == ["a", "b"]
    assert [each.target for each in explain(cnn, [path], ["b"])] == ["b"]
    with pytest.raises(OpcostError, match=r"no database has a target 'c'\. Allowed: a, b"):
        explain(cnn, [path], ["c"])


def test_machines_of_one_name_stay_apart_in_a_merged_database(cnn, tmp_path):
    here = database(tmp_path / "a.parquet", [cnn], quiet_sentinel_time_s=1e-4)
    there = database(tmp_path / "b.parquet", [cnn], **SLOWER, **ON_A_GPU)
    merge([here, there], tmp_path / "merged.parquet")
    found = explain(cnn, [tmp_path / "merged.parquet"])
    assert {each.device_name: each.estimate.operators_time.value for each in found} == {
        "Simulated": pytest.approx(4e-3),
        "Other GPU": pytest.approx(8e-3),
    }
    assert len({each.conditions_id for each in found}) == 2


def test_targets_of_one_name_are_told_apart_by_what_differs_and_none_is_picked(cnn, tmp_path):
    times: dict[int, dict[str, float]] = {1: {}, 2: SLOWER}
    threads = [
        database(tmp_path / f"{n}.parquet", [cnn], **ON_A_GPU, threads=n, **times[n])
        for n in (1, 2)
    ]
    path = tmp_path / "merged.parquet"
    merge(threads, path)
    found = explain(cnn, [path])
    text = as_text(cnn, found, 5, None)
    for each, n in zip(found, [each.estimate.rows[0]["threads"] for each in found], strict=True):
        assert f"{each.conditions_id}, threads {n}" in text
        assert [one.conditions_id for one in explain(cnn, [path], [each.conditions_id])] == [
            each.conditions_id
        ]
        assert look_up(cnn, (), {}, path, each.conditions_id, 1, "float32").time is not None
    with pytest.raises(OpcostError, match="under several conditions: name one by its"):
        look_up(cnn, (), {}, path, "local", 1, "float32")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"without": ["relu"]}, "1 of 3 operator tuples is not measured"),
        (FAILED, "3 of 3 operator tuples failed (conv2d("),
    ],
    ids=["absent", "failed"],
)
def test_with_a_tuple_missing_there_is_no_sum(cnn, tmp_path, changes, reason):
    [explanation] = explain(cnn, [database(tmp_path / "d.parquet", [cnn], **changes)])
    assert explanation.estimate.time is None
    assert explanation.estimate.time_reason.startswith(reason)
    assert explanation.missing
    assert {row["status"] for row in explanation.tuples()} - {"ok"} in (
        {"missing"},
        {"out_of_memory"},
    )


CNN = str(STUDY / "models" / "tiny_cnn.yaml")


def run(*arguments):
    return CliRunner().invoke(main, ["explain", *map(str, arguments)])


def test_people_read_times_with_intervals_and_where_they_go(cnn, tmp_path):
    path = database(tmp_path / "d.parquet", [cnn])
    answer = run(CNN, "--database", path, "--details")
    assert answer.exit_code == 0, answer.output
    assert (
        "tiny_cnn on 1x3x8x8, float32: 4 calls of 3 operator tuples, 1 call of views"
        in answer.output
    )
    assert re.search(r"local +Simulated +4\.\d+ ms ± 3\.\d%", answer.output)
    assert "Runs of an operator are taken to vary by 2.0%" in answer.output
    assert "No energy: simulated: no meter." in answer.output
    assert "conv2d" in answer.output
    assert "To measure" not in answer.output


def test_an_interval_of_a_model_that_was_never_measured_says_what_it_holds(cnn, tmp_path):
    alone = run(CNN, "--database", database(tmp_path / "alone.parquet", [cnn]))
    assert "± (95 %) lacks the model error" in " ".join(alone.output.split())
    path = database(tmp_path / "known.parquet", [cnn], ratios=other_models(1.05, 0.95))
    answer = " ".join(run(CNN, "--database", path, "--details").output.split())
    found = re.search(
        r"4\.\d ms ± (\d+)%.*: ±3\.\d% from the measurements of operators; and the model error, "
        r"±(\d+)%, from 2 models measured end to end\.",
        answer,
    )
    assert found, answer
    assert 5 < int(found[2]) <= int(found[1]) < 20
    assert "lacks" not in answer


def test_sums_of_other_protocols_and_without_the_model_error_are_marked(cnn, tmp_path):
    first = database(tmp_path / "first.parquet", [cnn], "old", protocol_version=3)
    known = other_models(1.05, 0.95)
    second = database(tmp_path / "second.parquet", [cnn], "new", protocol_version=4, ratios=known)
    alone = run(CNN, "--database", first).output
    assert "lacks the model error" in " ".join(alone.split())
    assert "protocol:" not in alone
    both = run(CNN, "--database", first, "--database", second).output
    assert re.search(r"old +Simulated .* 3  ", both)
    assert re.search(r"new +Simulated .* 4  ", both)
    assert "protocol: the version of the measurement protocol" in both


def test_an_energy_without_the_model_error_is_marked_though_that_of_time_is_known(cnn, tmp_path):
    energy = {"energy_j": 0.1, "power_w": 100.0, "energy_reason": None, "core_cache_bytes": 0}
    path = database(tmp_path / "d.parquet", [cnn], ratios=other_models(1.05, 0.95), **energy)
    assert "lacks the model error" in " ".join(run(CNN, "--database", path).output.split())


def test_databases_of_one_file_name_are_told_apart(cnn, tmp_path):
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    paths = [database(tmp_path / each / "d.parquet", [cnn], each) for each in ("here", "there")]
    both = run(CNN, "--database", paths[0], "--database", paths[1]).output
    assert all(re.search(rf"{path.parent.name} +Simulated .*{path}", both) for path in paths)
    assert str(paths[0]) not in run(CNN, "--database", paths[0]).output


def test_a_model_without_kernels_has_no_cost_and_the_reason(cnn, tmp_path):
    path = database(tmp_path / "d.parquet", [cnn])
    answer = run("torch.nn:Flatten", "--input", "2x3x4", "--database", path)
    assert answer.exit_code == INCOMPLETE
    assert re.search(r"local +- +- +-", answer.output)
    assert "No time on local: the model launches no kernel" in answer.output
    assert "To measure" not in answer.output


def test_rows_that_must_not_be_added_up_leave_the_reason(cnn, tmp_path):
    path = database(tmp_path / "d.parquet", [cnn])
    rows = read_database(path).to_pylist()
    rows[0] |= {"protocol_version": 3}
    records.write(path, schemas.DATABASE, rows)
    text = " ".join(as_text(cnn, explain(cnn, [path]), 5, None).split())
    assert "where the time goes" not in text
    assert text.count("protocol_version 1 (2 rows) and 3 (1 row)") == 1
    assert "No time on local: measured under different conditions" in text


def test_a_database_without_rows_is_refused(cnn, tmp_path):
    records.write(tmp_path / "empty.parquet", schemas.DATABASE, [])
    with pytest.raises(OpcostError, match=r"empty.parquet holds no measurement"):
        explain(cnn, [tmp_path / "empty.parquet"])


def test_what_is_missing_is_listed_with_how_to_measure_it(cnn, tmp_path):
    path = database(tmp_path / "d.parquet", [cnn], without=["relu"])
    answer = run(CNN, "--database", path)
    assert answer.exit_code == INCOMPLETE
    said = " ".join(answer.output.split())
    assert re.search(r" >3\.\S+ ms .* No time on local: 1 of 3 operator tuples is not meas", said)
    assert "1 x relu(1x3x8x8)" in answer.output
    assert re.search(r"\ntiny_cnn +4 .* >3\.\d+ ms +100\.0%\n", answer.output)
    assert re.search(r"\n  2 others +1 +\d+ +0 +- +-\n", answer.output)
    assert "time  of measured\n" in answer.output
    assert f"is missing (there, or on this machine): opcost run {CNN}\n" in answer.output


def test_nothing_is_to_be_measured_that_only_other_machines_lack(cnn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    own = database(tmp_path / "results/database.parquet", [cnn])
    other = database(tmp_path / "d.parquet", [cnn], "elsewhere", without=["relu"])
    answer = run(CNN, "--database", own, "--database", other)
    assert answer.exit_code == 0, "one target has the complete answer"
    assert re.search(r"elsewhere .* 2/3", answer.output)
    assert "To measure" not in answer.output


def test_targets_without_data_are_one_line_and_leave_the_answer_of_another_complete(
    cnn, tiny_tuples, tmp_path
):
    here = database(tmp_path / "here.parquet", [cnn])
    others = database(tmp_path / "others.parquet", [tiny_tuples[0]], "h100", "h200")
    rows = read_database(others).to_pylist()
    unlike = [row for row in rows if row["tuple_id"] not in cnn.by_id]
    records.write(others, schemas.DATABASE, unlike)
    answer = run(CNN, "--database", here, "--database", others)
    assert answer.exit_code == 0
    assert re.findall(r"^.*h[12]00.*$", answer.output, re.MULTILINE) == ["No data: h100, h200"]
    assert answer.output.count("modules ") == 1
    assert run(CNN, "--database", others).exit_code == INCOMPLETE


@pytest.mark.parametrize("others", [("local",), ()])
def test_a_target_whose_rows_are_of_former_conditions_is_named_with_them(
    cnn, tiny_tuples, tmp_path, others
):
    former = "local/cpu-1thread-0a0a0a0a"
    rows = read_database(database(tmp_path / "former.parquet", [cnn], former)).to_pylist()
    mlp = read_database(database(tmp_path / "mlp.parquet", [tiny_tuples[0]], *others)).to_pylist()
    unlike = [row for row in mlp if row["tuple_id"] not in cnn.by_id] if others else []
    path = tmp_path / "d.parquet"
    records.write(path, schemas.DATABASE, [*rows, *unlike])
    answer = run(CNN, "--database", path)
    assert answer.exit_code == INCOMPLETE
    line = f"Measured under other conditions, which this shows: --target {former}"
    assert f"\nNo data: local\n{line}\n" in answer.output
    assert run(CNN, "--database", path, "--target", former).exit_code == 0


class Tied(nn.Module):
    """Its head has the weight of its embedding."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(30, 8), nn.Linear(8, 30, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


def test_without_a_measurement_all_modules_have_calls_flops_and_parameters(cnn, tmp_path):
    other = database(tmp_path / "d.parquet", [cnn])
    tied = extract_module_tuples(Tied(), [torch.zeros(2, 5, dtype=torch.long)], "tied")
    expected = [
        ["tied", "2", "4.8", "k", "240"],
        ["embedding", "(Embedding)", "1", "0", "240"],
        ["head", "(Linear)", "1", "4.8", "k", "240"],  # 2 x 5 x 8 x 30 x 2
    ]
    for text in (as_text(tied, explain(tied, [other]), 2, None), as_text(tied, [], 2, None)):
        [tree] = [part for part in text.split("\n\n") if part.startswith("modules")]
        title, *lines = tree.splitlines()
        assert title.split() == ["modules", "calls", "FLOPs", "parameters"]
        assert [line.split() for line in lines] == expected
        assert "(1 multiply-add = 2 FLOPs)" in text
    [target] = json.loads(run(CNN, "--database", other, "--json").output)["targets"]
    by_path = {row["module_path"]: row["parameters"] for row in target["modules"]}
    assert by_path == {"0": 84, "1": 0, "3": 0, "4": 1544}, "also where they are measured"


def test_the_parameters_of_a_module_itself_are_those_that_no_submodule_has(tmp_path):
    class Scaled(Tied):
        def __init__(self, scales):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(7)) if scales else 1.0

        def forward(self, tokens):
            return super().forward(tokens).sum() * (self.scale + 1.0)

    for scales, own in ((True, "7"), (False, "0")):
        model = extract_module_tuples(Scaled(scales), [torch.zeros(2, 5, dtype=torch.long)], "m")
        path = tmp_path / "m.pkl"
        write_model_tuples(path, model)
        [itself] = re.findall(r"^ +itself .*$", as_text(read_model_tuples(path), [], 9, None), re.M)
        assert itself.split()[-1] == own


def test_programs_get_everything(cnn, tmp_path):
    path = database(tmp_path / "d.parquet", [cnn], without=["relu"])
    answer = run(CNN, "--database", path, "--json", "--parquet", tmp_path / "tuples.parquet")
    [target] = json.loads(answer.output)["targets"]
    assert target["estimate_time_s"] is None
    assert target["partial_time_s"] == pytest.approx(3e-3)
    assert [entry["description"] for entry in target["missing"]] == ["relu(1x3x8x8)"]
    rows = pq.read_table(tmp_path / "tuples.parquet").to_pylist()
    assert {row["description"].partition("(")[0]: row["status"] for row in rows} == {
        "conv2d": "ok",
        "relu": "missing",
        "linear": "ok",
    }


def test_an_own_module_is_explained_by_its_factory(cnn, tmp_path, monkeypatch):
    (tmp_path / "nets_of_mine.py").write_text(
        "from torch import nn\n"
        "def net(width): return nn.Sequential(nn.Linear(8, width), nn.ReLU())\n"
    )
    monkeypatch.chdir(tmp_path)
    path = database(tmp_path / "d.parquet", [cnn])
    answer = run("nets_of_mine:net", "--input", "4x8", "--argument", "width=16", "-d", path)
    assert "net on 4x8, float32: 2 calls of 2 operator tuples" in answer.output
    assert "No data: local\n" in answer.output
    assert "opcost run nets_of_mine:net --input=4x8 --argument=width=16\n" in answer.output


def test_a_factory_can_be_named_by_its_file(cnn, tmp_path):
    (tmp_path / "file_of_mine.py").write_text("from torch import nn\ndef net(): return nn.ReLU()\n")
    path = database(tmp_path / "d.parquet", [cnn])
    answer = run(f"{tmp_path}/file_of_mine.py:net", "--input", "4x8", "-d", path)
    assert "net on 4x8, float32: 1 call of 1 operator tuple" in answer.output
    assert f"opcost run {tmp_path}/file_of_mine.py:net --input=4x8\n" in answer.output


def test_an_argument_of_a_torchvision_model_is_used_at_its_official_inputs():
    definition, _ = find_model("resnet18", Options(arguments={"num_classes": 10}))
    assert str(definition.inputs[0]) == "1x3x224x224"
    assert build(definition).fc.out_features == 10
    assert "--argument=num_classes=10" in run_command(definition, "resnet18")


@pytest.mark.parametrize(
    ("name", "given", "command"),
    [
        ("resnet18", Options(), "opcost run resnet18"),
        ("resnet18", Options(batches=(8,)), "opcost run resnet18 --batch=8"),
        (
            "resnet18",
            Options(inputs=(parse_input("8x3x112x112"),), dtypes=("bfloat16",)),
            "opcost run resnet18 --input=8x3x112x112 --dtype=bfloat16",
        ),
        (
            "nets:tagger",
            Options(inputs=(parse_input("1x8:int64<30"),), channels_last=True),
            "opcost run nets:tagger '--input=1x8:int64<30' --channels-last",
        ),
    ],
)
def test_the_command_that_measures_a_model_names_all_of_it(name, given, command):
    definition, _ = find_model(name, given)
    assert run_command(definition, name) == command


@pytest.mark.parametrize(
    ("name", "given", "shape", "command"),
    [
        ("nets.py:net", Options(inputs=(parse_input("8"),)), (4, 8), "nets.py:net --input=4x8"),
        (
            "resnet18",
            Options(inputs=(parse_input("3x56x56"),)),
            (4, 3, 56, 56),
            "resnet18 --input=4x3x56x56",
        ),
        ("resnet18", Options(), (4, 3, 224, 224), "resnet18 --batch=4"),
        ("small", Options(), (4, 3, 64, 64), "small --batch=4"),
    ],
)
def test_a_batch_size_is_that_of_opcost_run(name, given, shape, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config/models").mkdir(parents=True)
    config = "model: resnet18\ninputs: [{shape: [2, 3, 64, 64]}]\n"
    (tmp_path / "config/models/small.yaml").write_text(config)
    (tmp_path / "nets.py").touch()
    definition, _ = find_model(name, dataclasses.replace(given, batches=(4,)))
    assert definition.inputs == (InputSpec(shape),)
    assert run_command(definition, name) == f"opcost run {command}"


def test_a_config_of_the_folder_is_found_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config/models/two_tower.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("model: resnet18\ninputs: [{shape: [2, 3, 64, 64]}]\n")
    definition, folder = find_model("two_tower")
    assert (definition.batch_size, folder) == (2, Path("config/models"))
    assert run_command(definition, "two_tower") == "opcost run two_tower"
    with pytest.raises(OpcostError, match="defines inputs, dtype and arguments"):
        find_model("two_tower", Options(dtypes=("float64",)))
    with pytest.raises(OpcostError, match="Did you mean 'two_tower'"):
        find_model("two_towers")


def test_the_number_of_listed_operators_is_positive():
    answer = run("resnet18", "--top", "-1")
    assert answer.exit_code == 2
    assert "-1 is not in the range x>=1" in answer.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere/nets.py:net", "--input", "4"], "there is no file nowhere/nets.py: check"),
        (["resnet81"], "is not a torchvision model, a model config"),
        (["resnet81"], "Did you mean"),
        (["resnet18", "--input", "1x3x56x56", "--batch", "8"], "takes inputs of 3 dimensions and"),
        ([CNN, "--dtype", "bfloat16"], "defines inputs, dtype and arguments"),
        ([CNN, "--channels-last"], "defines inputs, dtype and arguments"),
        (["nets:net"], "the inputs of nets:net are unknown: give each with --input"),
        (["resnet18", "--input", "1,3,224,224"], "'1,3,224,224' is not an input"),
        (["resnet18", "--input", "0x3x224x224"], "'0x3x224x224' is not an input: sizes"),
        (["resnet18", "--input", "4<0"], "'4<0' is not an input: sizes"),
        (["resnet18", "--input", "9" * 5000], "is not an input"),
        (["nets:net", "--input", "3x8:uint8<257"], "give numbers from 0 to 256 for uint8"),
        (
            ["resnet18", "--dtype", "floaty"],
            "'floaty' is not a dtype of parameters. Allowed: float32",
        ),
        (["resnet18", "--input", "1x3:float99"], "Dtypes: float32"),
        (["resnet18", "--argument", "width"], "'width' is not an argument: give NAME=VALUE"),
        ([CNN, "--input", "1x3x8x8"], "defines inputs, dtype and arguments"),
        (["quantized"], "is not a torchvision model"),
        ([CNN, "--database", "nowhere.parquet"], "there is no database nowhere.parquet"),
        ([CNN, "--database", "tests/study"], "tests/study is a folder: name a database in it"),
    ],
)
def test_what_is_no_model_is_explained(arguments, message):
    answer = run(*arguments)
    assert answer.exit_code == 1
    assert message in answer.output
