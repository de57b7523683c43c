"""The real workflow on a study of seconds: what runs, what does not run again, what it leaves."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from conftest import Checkout
from opcost.rows.schemas import SCHEMA_VERSION

MEASUREMENTS = "results/local/operators/*.parquet"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A checkout with the tiny study done; tests copy it."""
    checkout = Checkout(tmp_path_factory.mktemp("finished") / "checkout")
    checkout.first_run = checkout.started()
    return checkout


@pytest.fixture
def done(finished, tmp_path):
    """A copy of the finished checkout, file times and Snakemake's records included."""
    root = tmp_path / "moved"
    subprocess.run(["cp", "-a", finished.root, root], check=True)
    copy = Checkout.__new__(Checkout)
    copy.root = root
    return copy


def edit(path: Path, change) -> None:
    document = yaml.safe_load(path.read_text())
    change(document)
    path.write_text(yaml.safe_dump(document))


def configure(checkout, **changes) -> None:
    edit(checkout.root / "tests/study/config.yaml", lambda config: config.update(changes))


def stamps(checkout) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in checkout.root.glob(MEASUREMENTS)}


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
    comparison = pq.read_table(results / "comparison.parquet").to_pandas().set_index("model")
    cnn = comparison.loc["tiny_cnn"]
    assert (cnn.calls, cnn.view_calls, cnn.tuples, cnn.measured_tuples) == (4, 1, 3, 3)
    assert (cnn.coverage_calls, cnn.coverage_flops) == (1, 1)
    assert cnn.flops == 2 * (2 * 8 * 8 * 3 * 27 + 192 * 8)
    times = database.set_index("operator").time_s
    conv = times["aten.conv2d.default"]
    others = cnn.estimate_time_s - 2 * conv
    assert others > 0
    assert cnn.time_relative_error == pytest.approx(cnn.estimate_time_s / cnn.reference_time_s - 1)
    summary = (results / "summary.txt").read_text()
    assert "tiny_mlp" in summary
    assert "tiny_cnn" in summary
    assert "conv2d" in (results / "cost.svg").read_text()


def test_sensors_are_characterised_alone(checkout):
    assert checkout.started("--", "characterize") == ["characterize_sensor", "identify_target"]
    sensor = json.loads((checkout.root / "results/local/sensor.json").read_text())
    assert (sensor["meter"] is None) == (sensor["meter_reason"] is not None)
    assert checkout.started("--", "characterize") == []


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


def test_some_operators_are_measured_again_last_of_all(done):
    configure(done, measured_again=2)
    assert done.started() == ["benchmark_operator_again"] * 2 + ["compare", "database", "report"]
    again = sorted((done.root / "results/local/again").glob("*.parquet"))
    assert [path.name for path in again] == sorted(stamps(done))[:2]
    assert done.started() == []


def test_nothing_is_done_twice(done):
    assert done.started() == []


def test_a_comment_in_a_model_config_does_nothing(done):
    with (done.root / "tests/study/models/tiny_cnn.yaml").open("a") as file:
        file.write("# a remark\n")
    with (done.root / "tests/study/models/tiny.py").open("a") as file:
        file.write("# a remark\n")
    assert done.started() == []


def test_moved_model_configs_do_nothing(done):
    (done.root / "tests/study/models").rename(done.root / "elsewhere")
    configure(done, model_directory="elsewhere")
    assert done.started() == []


def test_a_new_model_measures_only_its_new_tuples(done):
    model = {"factory": "tiny:mlp", "arguments": {"width": 8}, "inputs": [{"shape": [4, 8]}]}
    (done.root / "tests/study/models/square.yaml").write_text(yaml.safe_dump(model))
    configure(done, models=["tiny_mlp", "tiny_cnn", "square"])
    before = stamps(done)
    assert done.started() == sorted(
        ["extract", "models", "collect", "benchmark_model", "database", "compare", "report"]
        # linear 4x8 to 8 (once, though called twice) and relu 4x8
        + ["benchmark_operator"] * 2
    )
    assert before.items() <= stamps(done).items()


def test_a_removed_model_measures_nothing(done):
    configure(done, models=["tiny_cnn"])
    assert done.started() == ["collect", "compare", "database", "models", "report"]
    assert len(pq.read_table(done.root / "results/database.parquet")) == 3


def test_a_changed_model_config_extracts_that_model_alone(done):
    change = {"inputs": [{"shape": [2, 3, 8, 8]}]}
    edit(done.root / "tests/study/models/tiny_cnn.yaml", lambda model: model.update(change))
    before = stamps(done)
    assert done.started() == sorted(
        ["extract", "models", "collect", "benchmark_model", "database", "compare", "report"]
        + ["benchmark_operator"] * 3
    )
    assert before.items() <= stamps(done).items()


def test_a_changed_factory_extracts_its_models(done):
    source = done.root / "tests/study/models/tiny.py"
    source.write_text(source.read_text().replace("nn.ReLU()", "nn.Sigmoid()"))
    # Both models change: the file is theirs. Their linear and conv2d tuples stay measured.
    assert done.started().count("extract") == 2
    assert len(stamps(done)) == 6 + 2


def test_a_changed_measurement_setting_measures_again(done):
    edit(
        done.root / "tests/study/config.yaml",
        lambda config: config["measurement"].update(time_relative_ci=0.4),
    )
    before = stamps(done)
    started = done.started()
    assert started.count("extract") == 0
    assert started.count("benchmark_operator") == 6
    assert started.count("benchmark_model") == 2
    assert not before.items() & stamps(done).items()


def test_where_a_cluster_would_send_jobs_measures_nothing_again(done):
    cluster = {"gpu_model": "h100", "partition": "long", "constraint": "big", "exclusive": True}
    configure(done, targets={"local": {"device": "cpu", "cluster": cluster}})
    assert done.started() == []


def test_a_deleted_measurement_is_measured_again(done):
    next(done.root.glob(MEASUREMENTS)).unlink()
    assert done.started() == ["benchmark_operator", "compare", "database", "report"]


def test_filtered_operators_are_counted_and_leave_no_smaller_sum(done):
    configure(done, operators=["conv2d", "linear"])
    assert done.started() == ["collect", "compare", "database", "report"]
    comparison = pq.read_table(done.root / "results/comparison.parquet").to_pylist()
    for row in comparison:
        assert row["estimate_time_s"] is None
        assert row["time_reason"] == "1 of 3 operator tuples are filtered out"
        assert row["filtered_tuples"] == 1
        assert row["partial_time_s"] > 0
        assert row["coverage_flops"] == 1
        assert row["coverage_calls"] < 1


@contextlib.contextmanager
def running(checkout, measured: int):
    """A run in the background, from the moment that it has measured some tuples."""
    with subprocess.Popen(
        checkout.command(),
        cwd=checkout.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as run:
        deadline = time.monotonic() + 120
        while len(stamps(checkout)) < measured and time.monotonic() < deadline:
            time.sleep(0.05)
        yield run


def test_the_same_command_resumes_an_interrupted_and_a_killed_run(checkout):
    with running(checkout, measured=1) as run:
        os.killpg(run.pid, signal.SIGINT)  # as Ctrl-C does
        output, _ = run.communicate(timeout=120)
    assert run.returncode == 1
    assert "What was measured is kept: the same command goes on from there." in output.decode()
    interrupted = stamps(checkout)
    assert 1 <= len(interrupted) < 5
    with running(checkout, measured=len(interrupted) + 1) as run:
        run.kill()
    before = stamps(checkout)
    assert interrupted.items() <= before.items()
    assert len(interrupted) < len(before) < 6
    started = checkout.started()
    # A job outlives the killed Snakemake, and may have finished meanwhile.
    assert started.count("benchmark_operator") <= 6 - len(before)
    assert before.items() <= stamps(checkout).items()
    assert len(stamps(checkout)) == 6


def test_a_second_run_beside_a_live_one_is_refused(checkout):
    with running(checkout, measured=1) as run:
        os.kill(run.pid, signal.SIGSTOP)  # it lives, and cannot end before the others start
        assert checkout.run("--dry-run").returncode == 0
        for _ in range(2):
            second = checkout.run()
            assert second.returncode == 1
            assert "Directory cannot be locked" in second.stderr
        os.kill(run.pid, signal.SIGCONT)
        assert run.wait() == 0
    assert len(stamps(checkout)) == 6


def test_a_failing_operator_is_a_row_and_the_rest_goes_on(checkout):
    (checkout.root / "tests/study/models/tiny.py").write_text(
        "from torch import nn\n"
        "def mlp(width): return nn.Linear(8, width)\n"
        "def cnn(): return nn.GELU()\n"
    )
    # Fake tensors have a GELU of integers, a processor has not.
    edit(
        checkout.root / "tests/study/models/tiny_cnn.yaml",
        lambda model: model.update(inputs=[{"shape": [1, 3, 8, 8], "dtype": "int64"}]),
    )
    checkout.started()
    comparison = pq.read_table(checkout.root / "results/comparison.parquet").to_pandas()
    comparison = comparison.set_index("model")
    assert comparison.loc["tiny_mlp"].estimate_time_s > 0
    failed = comparison.loc["tiny_cnn"]
    assert failed.failed_tuples == 1
    assert "1 of 1 operator tuples failed (gelu" in failed.time_reason
    assert "the whole model was not measured: unsupported" in failed.time_reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ["tiny_mpl"]}, "Did you mean 'tiny_mlp'"),
        ({"operators": ["conv3", "linear"]}, "'conv3' is no operator. Did you mean 'conv2d'"),
        ({"targets": {"local": {"device": "cuda"}}}, "finds no CUDA device here"),
    ],
    ids=["model", "operator", "device"],
)
def test_bad_input_stops_before_anything_is_measured(checkout, changes, message):
    configure(checkout, **changes)
    completed = checkout.run()
    assert completed.returncode != 0
    assert message in completed.stdout + completed.stderr
    assert not stamps(checkout)


def test_a_results_file_of_another_schema_version_is_named(done):
    path = next(done.root.glob(MEASUREMENTS))
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, b"opcost.schema_version": b"0"}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    completed = done.run()
    assert completed.returncode != 0
    output = completed.stdout + completed.stderr
    assert f"has opcost.schema_version 0; this opcost reads {SCHEMA_VERSION}" in output
    assert f"delete results/local/operators/{path.name} and run again" in output


def test_a_budget_measures_what_explains_most_and_a_larger_one_the_rest(checkout):
    configure(checkout, max_device_time_s=0.3)  # whole models alone take more: no tuple
    assert "benchmark_operator" not in checkout.started()
    summary = (checkout.root / "results/summary.txt").read_text()
    assert "3 of 3 operator tuples are not measured" in summary
    assert "6 beyond the budget" in checkout.run("--", "plan").stdout
    configure(checkout, max_device_time_s=100)
    assert checkout.started().count("benchmark_operator") == 6
    assert checkout.started() == []
    configure(checkout, max_device_time_s=0.1)
    assert checkout.started() == [], "what is measured stays"


def test_a_plan_says_what_is_to_be_measured_and_measures_nothing(checkout):
    planned = checkout.run("--", "plan").stdout
    assert "operators: 6 tuples, 0 measured, 6 to measure" in planned
    assert "models: 2, 0 measured, 2 to measure" in planned
    assert not list((checkout.root / "results").glob("local/*"))


def test_two_runs_on_one_device_take_turns_and_say_so(tmp_path):
    checkouts = [Checkout(tmp_path / name) for name in ("here", "there")]
    runs = [
        subprocess.Popen(
            checkout.command(), cwd=checkout.root, stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for checkout in checkouts
    ]
    outputs = [b"".join(run.communicate(timeout=300)).decode() for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    rows = [
        row
        for checkout in checkouts
        for kind in ("operators", "models")
        for path in checkout.root.glob(f"results/local/{kind}/*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]
    assert len(rows) == 2 * (6 + 2)
    trials = sorted((row["started_at"], row["ended_at"]) for row in rows)
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(trials))
    assert any("waiting for the device, held by process" in output for output in outputs)


def test_of_what_is_killed_only_the_measurement_in_progress_is_lost(checkout):
    """Killed in turn: a measurement's process, its job's, and the server that both come from."""
    edit(
        checkout.root / "tests/study/config.yaml",
        lambda config: config["measurement"].update(warm_up_s=1.0),
    )
    results = checkout.root / "results"
    run = subprocess.Popen(
        checkout.command(), cwd=checkout.root, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    wait_until(lambda: (results / "local/sensor.json").exists())
    wait_until(lambda: (results / "operator_tuples.json").exists())
    for kind in ("measurement", "job", "server"):
        killed = wait_until(lambda: processes(run.pid))[kind]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda killed=killed: killed not in processes(run.pid).values())
    output = b"".join(run.communicate(timeout=300)).decode()
    assert run.returncode == 1, output
    assert "the worker was killed by signal 9" in output
    paths = [*results.glob("local/operators/*.parquet"), *results.glob("local/models/*.parquet")]
    rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
    assert sorted(row["status"] for row in rows) == ["crashed"] + ["ok"] * 6
    [crashed] = [row for row in rows if row["status"] == "crashed"]
    assert "SIGKILL" in crashed["error"]
    again = [rule for rule in checkout.started() if rule.startswith("benchmark")]
    assert len(again) == 1, "the job that was killed"


def processes(run: int) -> dict[str, int]:
    """What a measurement of a run consists of: a server, its job, and the measurement itself."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (path / "environ").read_bytes()
            if f"OPCOST_RUN={run}\0".encode() not in environment:
                continue
            if b"opcost.workers.server" in (path / "cmdline").read_bytes():
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    parents[int(path.name)] = int(parent)
    for measurement, job in parents.items():
        if parents.get(job) in parents:
            return {"server": parents[job], "job": job, "measurement": measurement}
    return {}


def wait_until(condition, timeout_s=120):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found
