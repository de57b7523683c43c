"""The real workflow on a study of seconds: what it makes, plans and refuses."""

import json
import math
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from opcost.addresses import Addresses
from opcost.costs.answers import costs_of_models
from opcost.costs.known_ratios import ratios_of
from opcost.databases.database import read_database
from opcost.databases.measured import Damages, find_measured
from opcost.databases.model_ratios import read_ratios
from opcost.plain_yaml import read_yaml
from opcost.planning.plan import models_on
from opcost.planning.rounds import (
    expect_target_rounds,
    plan_target_round,
    read_round,
    with_rest_of_budget,
)
from opcost.planning.target_plan import plan_target
from opcost.rows import records, schemas
from opcost.rows.flags import CALLS_DIFFER, CALLS_VARY, UNSURE_POWER
from opcost.rows.overhead_samples import overhead_columns, read_samples
from opcost.rows.quantities import ENERGY, POWER, TIME
from opcost.rows.schemas import SCHEMA_VERSION
from opcost.statistics import Estimate, product
from opcost.study import load_study
from opcost.tuples.model_tuples import read_model_tuples

from tests.checkout import (
    MEASUREMENTS,
    REPOSITORY,
    STUDY,
    Checkout,
    configure,
    edit,
    run_times_s,
    stamps,
)
from tests.faults import rows


def addresses_of(checkout, **changes):
    document = read_yaml(STUDY / "config.yaml") | {"model_directory": str(STUDY / "models")}
    study = replace(load_study(document), **changes)
    return Addresses(study, checkout.root / "results")


def whole(checkout, name="tiny_mlp"):
    [path] = checkout.folder.glob(f"models/{name}-*.parquet")
    return path


def test_a_fresh_run_measures_each_unique_tuple_and_each_model_once(finished):
    # tiny_mlp: linear 4x8, relu 4x16, linear 4x16; tiny_cnn: conv2d (twice), relu, linear
    assert finished.first_run == sorted(
        ["extract"] * 2
        + ["collect", "identify_target", "characterize_sensor"]
        + ["benchmark_operator"] * 6
        + ["benchmark_model"] * 2
        + ["database", "compare", "models", "report"]
    )


def test_the_results_say_what_the_models_cost(finished):
    results = finished.root / "results"
    database = pq.read_table(results / "database.parquet").to_pandas()
    assert len(database) == 6
    assert (database.status == "ok").all()
    assert (database.time_ci_low_s <= database.time_s).all()
    assert (database.time_s <= database.time_ci_high_s).all()
    assert (database.energy_j.isna() == database.energy_reason.notna()).all()
    comparison = pd.DataFrame(costs_of_models(results / "answers.parquet")).set_index("model")
    cnn = comparison.loc["tiny_cnn"]
    assert (cnn.calls, cnn.view_calls, cnn.tuples, cnn.measured_tuples) == (4, 1, 3, 3)
    assert cnn.coverage_flops == 1
    assert list(cnn.differing_calls) == []
    assert cnn.flops == 2 * (2 * 8 * 8 * 3 * 27 + 192 * 8)
    times = database.set_index("operator").time_s
    conv = times["aten.conv2d.default"]
    others = cnn.estimate_time_s - 2 * conv
    assert others > 0
    assert cnn.time_relative_error == pytest.approx(cnn.estimate_time_s / cnn.end_to_end_time_s - 1)
    assert (comparison.model_error_models == 1).all(), "each has one other model"
    for ratio in read_ratios(results / "database.parquet")["local"]:
        compared = comparison.loc[ratio.model]
        assert ratio.time == pytest.approx(math.log1p(compared.time_relative_error))
    summary = (results / "summary.txt").read_text()
    assert "tiny_mlp" in summary
    assert "tiny_cnn" in summary
    assert "conv2d" in (results / "cost.svg").read_text()


def test_sensors_are_characterised_alone_and_nothing_is_measured_again(done):
    """So an error about device.json may say: delete it."""
    before = stamps(done)
    for name in ("device.json", "sensor.json"):
        (done.folder / name).unlink()
    assert done.started("--", "characterize") == ["characterize_sensor", "identify_target"]
    sensor = json.loads((done.folder / "sensor.json").read_text())
    assert (sensor["meter"] is None) == (sensor["meter_reason"] is not None)
    assert not [rule for rule in done.started() if rule.startswith("benchmark")]
    assert stamps(done) == before


def test_models_are_tabulated_alone_and_one_that_is_refused_stops_nothing(done):
    configure(done, torchvision={"names": ["quantized_resnet18"]})
    assert done.started("--", "models") == ["extract", "models"]
    table = pq.read_table(done.root / "results/models.parquet").to_pandas().set_index("model")
    assert table.extracted.to_dict() == {
        "tiny_mlp": True,
        "tiny_cnn": True,
        "quantized_resnet18": False,
    }
    assert not {"benchmark_model", "extract"} & set(done.started())
    summary = (done.root / "results/summary.txt").read_text()
    assert "Not extracted: quantized_resnet18: quantised models are not supported" in summary


def test_a_training_step_is_measured_and_compared_phase_by_phase(done):
    configure(done, models=["tiny_mlp", "tiny_training"])
    started = done.started()
    assert started.count("benchmark_model") == 1
    results = done.root / "results"
    comparison = pd.DataFrame(costs_of_models(results / "answers.parquet")).set_index("model")
    trained = comparison.loc["tiny_training"]
    assert (trained.tuples, list(trained.differing_calls)) == (trained.measured_tuples, [])
    phases = ("forward", "backward", "optimizer")
    parts = [trained[f"estimate_{phase}_time_s"] for phase in phases]
    assert sum(parts) == pytest.approx(trained.estimate_time_s)
    assert trained.activation_peak_bytes > 0
    assert comparison.loc["tiny_mlp"].isna()["estimate_forward_time_s"]
    shares = pq.read_table(results / "shares.parquet").to_pandas().set_index("model")
    assert set(shares.loc["tiny_training"].phase) == {"forward", "loss", "backward", "optimizer"}
    details = (results / "details.txt").read_text()
    assert "phase" in details
    assert "x forward" in details
    # In another process: one that has run backward itself cannot fork others that do.
    command = [sys.executable, "-m", "opcost", "explain", "tests/study/models/tiny_training.yaml"]
    explained = subprocess.run(
        [*command, "--database", "results/database.parquet"],
        cwd=done.root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "a training step" in explained
    assert "x forward" in explained


def test_further_rounds_measure_what_makes_the_answers_more_precise(done):
    wanted = {"rounds": 2, "precision": {"models": 0.0001}}
    configure(done, **wanted, models=["tiny_mlp"], max_device_time_s=0.001)
    assert "benchmark_model" not in done.started()  # there is no time for a second round
    # It is planned again: for other models, and within another budget.
    configure(done, models=["tiny_mlp", "tiny_cnn"], max_device_time_s=None)
    planned = " ".join(done.run("--", "plan").stdout.split())
    [expected] = re.findall(r"later rounds: at most about .*? for (\d+) measurement", planned)
    started = done.started()
    assert sum(rule.startswith("benchmark_") for rule in started) == int(expected)
    assert started.count("benchmark_model") == 2
    assert {"benchmark_operator", "compare", "database", "report"} <= {*started}
    assert runs_of_wholes(done) == [2, 2]
    database = pq.read_table(done.root / "results/database.parquet").to_pylist()
    for row in database:
        times_s = run_times_s(done.folder, row["tuple_id"])
        assert (row["runs"], row["run_time_s"]) == (len(times_s), times_s)
    measured = Counter(path.stem for path in done.folder.glob("operators*/*.parquet"))
    assert 2 in measured.values()
    files = [done.folder / name for name in ("device.json", "overhead_2.json")]
    samples = [sample for path in files for sample in read_samples(path)]
    all_of_them = overhead_columns(samples)
    assert database[0]["call_overhead_s"] == all_of_them["call_overhead_s"]
    configure(done, rounds=1)
    before = every_row(done)
    done.copy_results()
    assert not [rule for rule in done.started() if rule.startswith("benchmark")]
    assert every_row(done) == before
    assert runs_of_wholes(done) == [2, 2], "what is measured counts, as that of operators does"
    assert_the_damaged_run_is_to_be_deleted(done)


def every_row(checkout):
    return {
        str(path.relative_to(checkout.root)): path.read_bytes()
        for kind in ("operators", "models")
        for path in checkout.root.glob(f"results/local/*/{kind}*/*.parquet")
    }


def runs_of_wholes(checkout):
    comparison = costs_of_models(checkout.root / "results/answers.parquet")
    return [
        row["end_to_end_measurements"] + len(row["end_to_end_disturbed_s"]) for row in comparison
    ]


def rows_by_target(results):
    table = read_database(results / "database.parquet").to_pylist()
    return {"local": {row["tuple_id"]: row for row in table}}


def assert_the_damaged_run_is_to_be_deleted(checkout):
    """And not the good one of round 1."""
    results = checkout.root / "results"
    path = next(checkout.folder.glob("models_2/*.parquet"))
    path.write_bytes(path.read_bytes()[:-20])
    damages = Damages()
    ratios_of(find_measured(results), damages, rows_by_target(results))
    [text] = damages.found.values()
    assert f"delete {path} and run again" in text


@pytest.mark.parametrize("flag", [CALLS_VARY, CALLS_DIFFER])
def test_a_model_whose_calls_were_others_says_nothing_of_the_model_error(done, flag):
    results = done.root / "results"
    rows.change(whole(done, "tiny_cnn"), flags=lambda flags: [*flags, flag])
    found = ratios_of(find_measured(results), Damages(), rows_by_target(results))
    assert [each.model for each in found["local"]] == ["tiny_mlp"]


@pytest.mark.parametrize("flag", sorted(UNSURE_POWER))
def test_a_model_of_doubtful_power_says_nothing_of_the_model_error_of_energy(done, flag):
    results, power = done.root / "results", Estimate(10.0, 9.9, 10.1)

    def with_power(row):
        energy = POWER.columns(power) | ENERGY.columns(product(TIME.read(row), power))
        return energy | {"energy_reason": None}

    of_target = {
        tuple_id: row | with_power(row) | {"run_power_w": None}
        for tuple_id, row in rows_by_target(results)["local"].items()
    }
    for path in done.folder.glob("models*/*.parquet"):
        [row] = records.read(path, schemas.MODEL).to_pylist()
        doubts = [flag] if row["model"] == "tiny_cnn" else []
        rows.change(path, **with_power(row), flags=[*row["flags"], *doubts])
    found = ratios_of(find_measured(results), Damages(), {"local": of_target})["local"]
    assert [(each.model, each.energy is None) for each in found] == [
        ("tiny_cnn", True),
        ("tiny_mlp", False),
    ]


def test_precise_answers_need_no_further_round(done):
    configure(done, rounds=9, precision={"models": None})
    assert "plan_round" in done.started()
    plans = sorted(done.folder.glob("rounds/*.json"), key=lambda path: int(path.stem[-1]))
    # The second round tells how runs vary; none of the others is needed for that.
    assert [bool(read_round(path)) for path in plans] == [True, False]


def test_filtered_operators_are_counted_and_leave_no_smaller_sum(done):
    configure(done, operators=["conv2d", "linear"])
    assert done.started() == ["collect", "compare", "database", "report"]
    comparison = costs_of_models(done.root / "results/answers.parquet")
    for row in comparison:
        assert row["estimate_time_s"] is None
        assert row["time_reason"] == "1 of 3 operator tuples are filtered out"
        assert row["partial_time_s"] > 0
        assert row["coverage_flops"] == 1
        assert row["measured_tuples"] < row["tuples"]


def test_a_failing_operator_is_a_row_and_the_rest_goes_on(prepared):
    (prepared.root / "tests/study/models/tiny.py").write_text(
        "from torch import nn\n"
        "def mlp(width): return nn.Linear(8, width)\n"
        "def cnn(): return nn.GELU()\n"
    )
    # Fake tensors have a GELU of integers, a processor has not.
    edit(
        prepared.root / "tests/study/models/tiny_cnn.yaml",
        lambda model: model.update(inputs=[{"shape": [1, 3, 8, 8], "dtype": "int64"}]),
    )
    prepared.started()
    comparison = pd.DataFrame(costs_of_models(prepared.root / "results/answers.parquet"))
    comparison = comparison.set_index("model")
    assert comparison.loc["tiny_mlp"].estimate_time_s > 0
    failed = comparison.loc["tiny_cnn"]
    assert failed.failed_tuples == 1
    assert "1 of 1 operator tuples failed (gelu" in failed.time_reason
    assert "it was not measured end to end: unsupported" in failed.time_reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ["tiny_mpl"]}, "Did you mean 'tiny_mlp'"),
        ({"operators": ["conv3", "linear"]}, "'conv3' is no operator. Did you mean 'conv2d'"),
    ],
    ids=["model", "operator"],
)
def test_bad_input_stops_before_anything_is_measured(prepared, changes, message):
    configure(prepared, **changes)
    completed = prepared.run()
    assert completed.returncode != 0
    assert message in completed.stdout + completed.stderr
    assert not stamps(prepared)


def test_a_device_that_is_not_here_ends_the_run_before_anything_is_measured(checkout):
    configure(checkout, targets={"local": {"device": "cuda"}})
    completed = checkout.run()
    assert completed.returncode != 0
    assert "finds no CUDA device here" in completed.stdout + completed.stderr
    assert "What was measured is kept" not in completed.stdout
    assert not stamps(checkout)


def test_a_second_configfile_that_names_targets_measures_no_others(checkout):
    (checkout.root / "gpu.yaml").write_text("targets: {other: {device: cpu}}")
    planned = checkout.run("gpu.yaml", "--dry-run").stdout
    devices = re.findall(r"results/(\w+)/[^/]+/device\.json", planned)
    assert set(devices) == {"other"}


def test_a_further_configfile_is_read_as_it_is_written_or_refused(checkout):
    (checkout.root / "more.yaml").write_text("{rounds: 1, rounds: 7}")
    completed = checkout.run("more.yaml", "--dry-run")
    assert completed.returncode != 0
    said = completed.stdout + completed.stderr
    assert "more.yaml has the key 'rounds' twice, in line 1" in said


def test_a_path_that_snakemake_takes_for_a_pattern_is_refused(tmp_path):
    completed = Checkout(tmp_path / "a{model}").run("--dry-run")
    assert completed.returncode != 0
    said = completed.stdout + completed.stderr
    assert "a{model} to a folder without { and } in its path" in said
    assert "NameError" not in said


def test_braces_in_arguments_and_paths_of_models_are_no_wildcards(done):
    folder = done.root / "tests/study/{models}"
    (done.root / "tests/study/models").rename(folder)
    (folder / "named.py").write_text(
        "from torch import nn\ndef build(name): return nn.Sequential(nn.Linear(8, 16))\n"
    )
    model = {"factory": "named:build", "arguments": {"name": "{width}"}}
    model["inputs"] = [{"shape": [4, 8]}]
    (folder / "named.yaml").write_text(yaml.safe_dump(model))
    configure(
        done,
        models=["tiny_mlp", "tiny_cnn", "named"],
        model_directory=str(folder.relative_to(done.root)),
    )
    started = done.started()
    assert {"extract", "benchmark_model", "compare", "report"} <= {*started}
    assert done.started() == []


def test_a_damaged_manifest_is_named_without_frames(done):
    [manifest] = done.root.glob("results/studies/*/operator_tuples.json")
    manifest.write_text("")
    completed = done.run()
    assert completed.returncode != 0
    said = completed.stdout + completed.stderr
    assert "operator_tuples.json is not valid JSON" in " ".join(said.split())
    assert "InputFunctionException" not in said
    assert "Traceback" not in said


def test_a_results_file_of_another_schema_version_is_named(done):
    path = next(done.root.glob(MEASUREMENTS))
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, b"opcost.schema_version": b"0"}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    completed = done.run()
    assert completed.returncode != 0
    output = completed.stdout + completed.stderr
    assert f"has opcost.schema_version 0; this opcost reads {SCHEMA_VERSION}" in output
    assert f"delete {path.relative_to(done.root)} and run again" in output


def test_a_budget_measures_what_explains_most_and_a_larger_one_the_rest(prepared):
    configure(prepared, max_device_time_s=0.3)  # whole models alone take more: no tuple
    assert "benchmark_operator" not in prepared.started()
    summary = (prepared.root / "results/summary.txt").read_text()
    assert "3 of 3 operator tuples are not measured" in summary
    assert "6 beyond the budget" in prepared.run("--", "plan").stdout
    configure(prepared, max_device_time_s=100)
    assert prepared.started().count("benchmark_operator") == 6
    assert "measuring time: nothing left to measure" in prepared.run("--", "plan").stdout
    configure(prepared, max_device_time_s=0.1)
    assert prepared.started() == [], "what is measured stays"


def test_a_later_round_leaves_the_time_that_round_1_still_needs(done):
    budget_s = 1000

    def second_round():
        addresses = addresses_of(done, rounds=2, max_device_time_s=budget_s)
        first = plan_target(addresses, "local")
        return first, plan_target_round(addresses, "local", 2, first)

    _, planned = second_round()
    assert sorted(planned.models) == ["tiny_cnn", "tiny_mlp"]
    assert 2 <= len(planned.operators) <= 6
    assert planned.is_cut is False
    next(done.root.glob(MEASUREMENTS)).unlink()
    first, _ = second_round()
    budget_s = 1.5 * first.job_s
    first, planned = second_round()
    assert len(first.chosen) == 1
    assert planned.needed_s <= first.job_s / 2
    budget_s = 0.5 * first.job_s
    first, planned = second_round()
    assert len(first.beyond) == 1
    assert not planned


def test_a_budget_counts_what_the_run_measured_itself_in_any_series(done):
    addresses = addresses_of(done, max_device_time_s=100)
    operator, model = next(done.root.glob(MEASUREMENTS)), whole(done)
    taken_s = sum(
        records.read(path, schema).to_pylist()[0]["device_time_s"]
        for path, schema in ((operator, schemas.OPERATOR), (model, schemas.MODEL))
    )
    began_s = time.time() + 1
    for path in (operator, model):
        os.utime(path, (began_s, began_s))
    left = with_rest_of_budget(addresses, "local", began_s)
    assert left.study.max_device_time_s == pytest.approx(100 - taken_s)
    assert with_rest_of_budget(addresses, "local", began_s + 1) == addresses


def test_what_failed_is_not_promised_for_later_rounds(done):
    addresses = addresses_of(done, rounds=2)
    first = next(done.root.glob(MEASUREMENTS))
    for path, schema in ((first, schemas.OPERATOR), (whole(done), schemas.MODEL)):
        [row] = records.read(path, schema).to_pylist()
        result = re.compile("(host_)?time_(s|ci)|batch_|power_|energy_")
        nothing = {name: None for name in row if result.match(name)}
        failure = {"status": "out_of_memory", "error": "simulated", "flags": []}
        records.write(path, schema, [row | nothing | failure])
    plan = plan_target(addresses, "local")
    [expected] = expect_target_rounds(addresses, "local", models_on(addresses, "local"), plan)
    planned = plan_target_round(addresses, "local", 2, plan)
    assert expected == planned
    assert planned.models == ["tiny_cnn"]
    assert first.stem not in planned.operators


def test_a_plan_for_models_that_are_new_counts_them_alone_and_tells_their_later_rounds(done):
    whole(done, "tiny_cnn").unlink()
    [extraction] = done.root.glob("results/tuples/tiny_cnn-*.pkl")
    for path in done.root.glob(MEASUREMENTS):
        if path.stem in read_model_tuples(extraction).by_id:
            path.unlink()
    wanted = {"models": ["tiny_cnn"], "rounds": 2, "precision": {"models": 1e-4}}
    configure(done, **wanted, max_device_time_s=100)
    planned = " ".join(done.run("--", "plan").stdout.split())
    assert "3 tuples, 0 measured, 3 to measure" in planned
    assert re.search(r"later rounds: at most about .* for [1-9]\d* measurement", planned), planned
    assert "as jobs took so far)" in planned


def test_a_plan_says_what_is_to_be_measured_and_measures_nothing(checkout):
    planned = checkout.run("--", "plan").stdout
    assert "operators: 6 tuples, 0 measured, 6 to measure" in planned
    assert "models: 2, 0 measured, 2 to measure" in planned
    assert "later rounds" not in planned
    assert not list((checkout.root / "results").glob("local/*"))
    configure(checkout, rounds=4, precision={"models": 1e-4})
    planned = " ".join(checkout.run("--", "plan").stdout.split())
    # Each of three rounds measures both models and the operators that matter most.
    found = re.search(r"later rounds: at most about .* for (\d+) measurements", planned)
    assert found
    assert 3 * (2 + 2) <= int(found[1]) <= 3 * (2 + 6)


def test_another_workflow_runs_it_as_documented_from_a_read_only_tree_with_spaces(prepared):
    tree = prepared.root / "a read-only tree"
    tree.mkdir()
    for name in ("workflow", "scripts", "envs"):
        (prepared.root / name).rename(tree / name)
    subprocess.run(["chmod", "-R", "a-w", tree], check=True)
    guide = (REPOSITORY / "docs/how_to/studies.md").read_text()
    [snippet] = re.findall(r"```text\n(configfile.*?)```", guide, re.DOTALL)
    (prepared.root / "Snakefile").write_text(snippet.replace("path/to/opcost", tree.name))
    study = read_yaml(prepared.root / "tests/study/config.yaml")
    (prepared.root / "config/mine.yaml").write_text(json.dumps({"opcost": study}))
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*")}
    completed = prepared.run()
    subprocess.run(["chmod", "-R", "u+w", tree], check=True)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert completed.stderr.count("(Rule: opcost_benchmark_operator)") == 6
    assert "(Rule: opcost_report)" in completed.stderr
    assert "More on one page: results/report.html" in completed.stdout
    assert "localrules" not in completed.stderr
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*")} == before
