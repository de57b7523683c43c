"""`opcost run` with the real workflow: runs add to each other, and measure only what they name.

Nothing in the user's folder changes but results and logs.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import opcost as package
import pyarrow.parquet as pq
import pytest
import torch
from opcost.costs.answers import costs_of_models
from opcost.databases.database import read_database
from opcost.errors import OpcostError
from opcost.rows import records, schemas
from opcost.rows.quantities import TIME
from torch import nn

from tests import warm_python
from tests.checkout import MEASUREMENTS, REPOSITORY, edit, stamps

MLP = ["tests/study/models/tiny.py:mlp", "--argument", "width=16", "--input", "8"]


@pytest.fixture
def opcost(done):
    """Runs a command of opcost where the tiny study is the default study, and is measured."""
    shutil.copy(done.root / "tests/study/config.yaml", done.root / "config/config.yaml")

    def run(*arguments, charts=False):
        environment = {**os.environ, "PYTHONPATH": str(done.root / "scripts")}
        return subprocess.run(
            [sys.executable, "-m", "opcost", *arguments],
            cwd=done.root,
            env=warm_python.with_warm_jobs(environment, charts=charts),
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@pytest.fixture
def tracked(done):
    """What Git says of the folder, since its files were committed."""

    def git(*arguments):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(
            command, cwd=done.root, capture_output=True, text=True, check=True
        ).stdout

    shutil.copy(REPOSITORY / ".gitignore", done.root)
    shutil.copy(done.root / "tests/study/config.yaml", done.root / "config/config.yaml")
    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message=a")
    return lambda: git("status", "--porcelain")


def command_of(run):
    """The command of Snakemake that a run shows."""
    [line] = re.findall("^.*snakemake .*--cores 1.*$", run.stderr, re.MULTILINE)
    return line


def compared(checkout):
    rows = costs_of_models(checkout.root / "results/answers.parquet")
    return {(row["target"], row["model"]) for row in rows}


def test_runs_measure_what_they_name_and_tables_show_all_that_is_measured(done, opcost, tracked):
    before = stamps(done)
    first = opcost("run", *MLP, "--batch", "4,2")
    assert first.returncode == 0, first.stderr
    # Batch 4 is the config that is there already; of batch 2, three tuples are new.
    models = """--config 'models=["tiny_mlp", {"name": "mlp_b2_width_16", "factory": "tiny:mlp", """
    assert models in command_of(first)
    measured = stamps(done)
    assert before.items() <= measured.items()
    assert len(measured) == len(before) + 3
    assert "tiny_mlp " in first.stdout
    assert "tiny_cnn" not in first.stdout
    everything = {("local", name) for name in ("tiny_mlp", "tiny_cnn", "mlp_b2_width_16")}
    assert compared(done) == everything
    page = (done.root / "results/report.html").stat().st_mtime_ns
    again = opcost("run", *MLP, "--batch", "4,2")
    assert again.stderr.endswith("\nNothing to measure: all of it is measured already.\n")
    assert (done.root / "results/report.html").stat().st_mtime_ns == page

    pasted = subprocess.run(command_of(first), shell=True, cwd=done.root, capture_output=True)
    assert pasted.returncode == 0, pasted.stderr
    assert stamps(done) == measured
    assert tracked() == ""

    other = {"other": {"device": "cpu"}}
    edit(done.root / "config/config.yaml", lambda study: study.update(targets=other))
    second = opcost("run", "tiny_mlp")
    assert second.returncode == 0, second.stderr
    assert compared(done) == {*everything, ("other", "tiny_mlp")}


def test_an_operator_is_measured_without_a_model_and_stays_in_the_tables(done, opcost):
    before, whole = stamps(done), compared(done)
    convolution = "conv2d(1x3x8x8, 3x3x3x3, 3, padding=[1,1])"
    ended = opcost(
        "operator", convolution, "--axis", "zeros=[0,0.5]", "--axis", "padding=[1,2]", charts=True
    )
    assert ended.returncode == 0, ended.stderr
    assert re.match(r"\nSweep conv2d on local:\n\nzeros  padding ", ended.stdout)
    # One of them is the convolution of tiny_cnn.
    assert len(stamps(done)) == len(before) + 3
    assert before.items() <= stamps(done).items()

    assert opcost("run", "tiny_mlp").returncode == 0
    swept = pq.read_table(done.root / "results/sweeps.parquet").to_pylist()
    assert [each["sweep"] for each in swept] == ["conv2d"] * 4
    assert all(each["time_s"] > 0 and each["flops"] > 0 for each in swept)
    assert compared(done) == whole
    models = pq.read_table(done.root / "results/models.parquet")["model"].to_pylist()
    assert {*models} == {"tiny_mlp", "tiny_cnn"}
    assert "Sweep conv2d on local:" in (done.root / "results/summary.txt").read_text()


FURTHER_ROUNDS = {"rounds": 3, "precision": {"models": 1e-4}}


def measured(checkout):
    """The files of all measurements, of any round, with their times."""
    paths = [
        path
        for kind in ("operators", "models")
        for path in checkout.root.glob(f"results/local/*/{kind}*/*.parquet")
    ]
    return {path: path.stat().st_mtime_ns for path in paths}


def test_a_profile_shows_what_operators_take_in_place_and_measures_nothing_twice(done, opcost):
    before = measured(done)
    edit(done.root / "config/config.yaml", lambda study: study.update(FURTHER_ROUNDS))
    found = opcost("profile", "tiny_mlp", "--by", "call")
    assert found.returncode == 0, found.stderr
    assert measured(done) == before
    assert "Where the time of tiny_mlp goes inside the running model, by call:" in found.stdout
    assert "Where do the estimate and the end-to-end measurement differ?" in found.stdout
    assert "±: half of the 95 % interval." in found.stdout
    [first, *_] = re.findall(r"^0 .*$", found.stdout, re.MULTILINE)
    assert "linear(" in first
    rows = records.read(done.root / "results/in_context.parquet", schemas.IN_CONTEXT).to_pylist()
    assert {row["model"] for row in rows} == {"tiny_mlp", "tiny_cnn"}
    for row in rows:
        added_s = row["calls"] * (row["in_context_time_s"] - row["isolated_time_s"])
        assert row["added_time_s"] == pytest.approx(added_s)


def test_a_profile_that_is_not_complete_says_so_and_lists_what_is_not_measured_alone(done, opcost):
    for path in done.root.glob(MEASUREMENTS):
        path.unlink()
    found = opcost("profile", "tiny_mlp", "--max-device-time", "0.001s")
    assert found.returncode == 3, found.stderr
    [line] = re.findall(r"^linear .*$", found.stdout, re.MULTILINE)
    assert line.split()[-3:] == ["-", "-", "-"]
    text = " ".join(found.stdout.split())
    assert "operator tuples are not measured, nor predicted (" in text
    assert "ended the measurements on local. Not measured:" in text
    assert "The same command goes on from here" in text


LAST_ROWS = ("other calls", "between calls", "end to end")


def test_each_kind_of_layer_is_run_alone_and_no_operator_is_measured_again(done, opcost):
    operators = [*done.root.glob(MEASUREMENTS)]
    found = opcost("profile", "tiny_cnn", "--layers")
    assert found.returncode == 0, found.stderr
    assert "tiny_cnn_layers on local, layer by layer" in found.stdout
    assert "Where the time of tiny_cnn goes" not in found.stdout
    [header] = re.findall(r"^layer .*$", found.stdout, re.MULTILINE)
    assert "time share" in header
    last = [re.findall(rf"^\({row}\) .*$", found.stdout, re.MULTILINE) for row in LAST_ROWS]
    assert [len(lines) for lines in last] == [1, 1, 1]
    rows = costs_of_models(done.root / "results/answers.parquet")
    has_energy = any(row["end_to_end_energy_j"] for row in rows)
    assert ("energy share" in header) == has_energy  # without a sensor, there are no such columns
    measured = {row["model"] for row in rows if row["end_to_end_time_s"]}
    assert {f"tiny_cnn_layers[layer={path}]" for path in (0, 1, 4)} <= measured
    assert {*done.root.glob(MEASUREMENTS)} == {*operators}


def test_without_a_model_the_study_is_measured_and_what_was_run_before_is_kept(done, opcost):
    (measured,) = done.root.glob("results/local/*/models/tiny_mlp-*.parquet")
    measured.unlink()
    before = stamps(done)
    found = opcost("run")
    assert found.returncode == 0, found.stderr
    assert re.search(
        r"\[plan\] local: about \d+ s for 1 model, \d+ tuples measured before", found.stderr
    )
    assert "tiny_mlp " in found.stdout
    assert "tiny_cnn " in found.stdout
    assert measured.exists()
    assert stamps(done) == before
    refused = opcost("run", "--batch", "2")
    assert refused.returncode == 2
    assert "need a MODEL" in refused.stderr


def test_a_plan_measures_nothing(done, opcost):
    planned = opcost("plan", "tiny_mlp", "--input", "8", "--device", "cpu", "--threads", "3")
    assert "defines inputs" in planned.stderr
    planned = opcost("plan", "tiny_mlp", "--device", "cpu", "--threads", "3")
    assert "Target cpu_3_threads\n  operators: 3 tuples, 0 measured, 3 to measure" in planned.stdout
    assert not [*done.root.glob("results/cpu_3_threads/**/*.parquet")]


def test_a_retry_measures_what_failed_or_has_a_flag_and_nothing_else(done, opcost):
    before = stamps(done)
    none = opcost("retry", "--flag", "drifting")
    assert none.stdout == "There is nothing to measure again.\n"
    flag_and_fail(done)
    [study] = done.root.glob("results/studies/*/study.json")
    document = json.loads(study.read_text())
    document["asked"]["max_device_time_s"] = 600
    study.write_text(json.dumps(document))
    retried = opcost("retry", "--flag", "drifting")
    assert retried.returncode == 0, retried.stderr
    assert "had a budget of measuring time, which does not hold here" in retried.stderr
    assert retried.stdout.count("to be measured again: ") == 2
    again = {name for name, stamp in stamps(done).items() if before.get(name) != stamp}
    assert len(again) == 2
    assert before.keys() == stamps(done).keys()


def test_a_retry_keeps_what_its_budget_does_not_measure_again(done, opcost):
    flag_and_fail(done)
    before = stamps(done)
    retried = opcost("retry", "--flag", "drifting", "--max-device-time", "0.001")
    assert "2 measurements kept as before, beyond the budget." in retried.stderr
    assert stamps(done) == before
    assert not [*done.root.glob("results/**/*.before")]
    flags = read_database(done.root / "results/database.parquet")["flags"].to_pylist()
    assert ["drifting"] in flags


def test_what_a_killed_retry_put_aside_is_put_back_by_the_next_one(done, opcost):
    path = sorted(done.root.glob(MEASUREMENTS))[0]
    path.rename(path.with_name(f"{path.name}.before"))
    assert opcost("retry").stdout == "There is nothing to measure again.\n"
    assert path.exists()


def test_a_report_is_made_anew_from_what_is_measured(done, opcost):
    [whole] = done.root.glob("results/local/*/models/tiny_cnn-*.parquet")
    whole.unlink()
    before = stamps(done)
    (done.root / "results/report.html").unlink()
    reported = opcost("report", charts=True)
    assert reported.returncode == 0, reported.stderr
    assert reported.stdout.endswith(f"The report: {done.root / 'results/report.html'}\n")
    assert (done.root / "results/report.html").exists()
    assert stamps(done) == before
    assert compared(done) == {("local", "tiny_mlp")}, "what is no longer measured is left out"
    assert not whole.exists()


def flag_and_fail(checkout):
    """One row of the study gets a flag, and another one fails."""
    flagged, failed = sorted(checkout.root.glob(MEASUREMENTS))[:2]
    [row] = records.read(flagged, schemas.OPERATOR).to_pylist()
    records.write(flagged, schemas.OPERATOR, [{**row, "flags": ["drifting"]}])
    [row] = records.read(failed, schemas.OPERATOR).to_pylist()
    failure = {"status": "timeout", "error": "after 60 s", **dict.fromkeys(TIME.names)}
    records.write(failed, schemas.OPERATOR, [row | failure])


def test_a_live_module_is_measured_by_the_same_workflow(done, opcost, monkeypatch):
    (done.root / "nets_of_mine.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Linear(8, 16), nn.ReLU())\n"
    )
    monkeypatch.syspath_prepend(done.root)
    environment = {**os.environ, "PYTHONPATH": str(done.root / "scripts")}
    for name, value in warm_python.with_warm_jobs(environment).items():
        monkeypatch.setenv(name, value)
    from nets_of_mine import Net

    cost = package.run(Net(), torch.randn(4, 8), folder=done.root)
    assert cost.time is not None, cost.reason
    assert cost.end_to_end_time is not None
    assert set(cost.operators["operator"]) >= {"linear", "relu"}
    measured = stamps(done)
    # Other weights are no other model.
    again = package.run(Net(), torch.randn(4, 8), folder=done.root)
    assert again.time == cost.time
    assert stamps(done) == measured
    assert not [*done.root.glob("config/models/net*")]


@pytest.mark.parametrize("name", ["a b", "../net", "/tmp/net", ".net", "n" * 300])
def test_a_name_that_no_config_can_have_is_refused(name, tmp_path):
    with pytest.raises(OpcostError, match="cannot name a model"):
        package.run(nn.Linear(8, 4), torch.ones(2, 8), name=name, folder=tmp_path)
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("module", "inputs", "message"),
    [
        (nn.Linear(8, 4), [{"input": torch.ones(2, 8)}], "must be Tensor, not dict"),
        (nn.ReLU(), [torch.ones(0, 8, dtype=torch.int64)], r"inputs\[0\] is empty"),
        (nn.Linear(8, 4, device="meta"), [torch.ones(2, 8)], "its weight is on the meta device"),
        (nn.Linear(8, 4).half(), [torch.ones(2, 8)], "dtype"),
        (nn.Sequential(nn.Linear(8, 4).double(), nn.Linear(4, 4)), [torch.ones(2, 8)], "dtype"),
    ],
)
def test_a_module_that_no_other_process_could_run_is_refused(module, inputs, message, tmp_path):
    with pytest.raises(OpcostError, match=message):
        package.run(module, inputs, folder=tmp_path)
    assert not list(tmp_path.rglob("*.yaml"))
