"""The workflow on a real Slurm cluster: two nodes with a GPU of one kind, one with another.

The GPUs are fake, and all nodes are this machine: what is measured is its processor. A folder for
temporary files for each node stands for the /tmp of a host of its own (tests/slurm/start.sh).
"""

import itertools
import json
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from tests.checkout import Checkout
from tests.slurm.cluster import Cluster, install, seconds_between, wait_until

pytestmark = pytest.mark.slurm

TIMEOUT_S = 30
MEASUREMENT_S = 12
"""Long enough for a job to be cancelled during its second measurement, once it is seen to have done
the first."""
ENDLESS = """
import torch

class Distances(torch.nn.Module):
    def forward(self, points):
        return torch.cdist(points, points, p=1.5)

def distances():
    return Distances()
"""


@pytest.fixture(scope="module")
def cluster():
    reason = install()
    if reason is not None:
        pytest.skip(f"Slurm is not here, and cannot be installed: {reason}")
    cluster = Cluster(["kind", "kind", "other"])
    yield cluster
    cluster.stop()


class Study(Checkout):
    """The tiny CNN and an operator that takes for ever, in a study of `kind` GPUs."""

    def __init__(self, root: Path, cluster: Cluster) -> None:
        super().__init__(root)
        self.cluster = cluster
        models = root / "tests/study/models"
        (models / "endless.py").write_text(ENDLESS)
        endless = {"factory": "endless:distances", "inputs": [{"shape": [3000, 2000]}]}
        (models / "endless.yaml").write_text(yaml.safe_dump(endless))
        path = root / "tests/study/config.yaml"
        config = yaml.safe_load(path.read_text())
        config["models"] = ["tiny_cnn", "endless"]
        times = {"timeout_s": TIMEOUT_S, "min_time_s": MEASUREMENT_S, "max_time_s": MEASUREMENT_S}
        config["measurement"] |= times
        config["targets"]["local"]["cluster"] = {"gpu_model": "kind", "partition": "gpu"}
        path.write_text(yaml.safe_dump(config))

    def start(self, *arguments: str) -> subprocess.Popen:
        profile = ["--workflow-profile", "workflow/profiles/slurm", "--latency-wait", "10"]
        batches = ["--group-components", "operators=2", "models=2"]
        quick = ["--slurm-init-seconds-before-status-checks", "2"]
        study = ["--configfile", "tests/study/config.yaml"]
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *profile, *batches, *quick, *study, *arguments],
            cwd=self.root,
            env=self.cluster.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def rows(self) -> dict[str, dict]:
        """The rows of operators and models, by tuple id and name."""
        files = (self.root / "results/local").glob("*/*/*.parquet")
        return {named(path.stem): pq.read_table(path).to_pylist()[0] for path in files}

    def members(self) -> dict[int, set[str]]:
        """The files' names of the rows that each job of the cluster was to measure, by its log."""
        members = {}
        for log in (self.root / "logs/slurm").rglob("*.log"):
            outputs = re.findall(
                r"output: results/local/[^/]+/\w+/([\w-]+)\.parquet", log.read_text()
            )
            if outputs:
                members[int(log.stem)] = set(map(named, outputs))
        return members


def named(stem: str) -> str:
    """A tuple id, or the model of an address."""
    return stem.partition("-")[0]


@dataclass
class Run:
    """One run of Snakemake, and what there was when it ended."""

    study: Study
    code: int
    output: str
    rows: dict[str, dict]
    jobs: dict[int, dict[str, str]]
    members: dict[int, set[str]]
    cancelled: int | None = None
    running: tuple[int, ...] = ()


def ended(study: Study, process: subprocess.Popen, earlier: Run | None = None) -> Run:
    with process:
        output, _ = process.communicate(timeout=600)
    newest = max(earlier.jobs) if earlier else 0
    jobs = {job: found for job, found in study.cluster.jobs().items() if job > newest}
    members = {job: names for job, names in study.members().items() if job in jobs}
    return Run(study, process.returncode, output, study.rows(), jobs, members)


@pytest.fixture(scope="module")
def finished(cluster, tmp_path_factory):
    """The whole study."""
    study = Study(tmp_path_factory.mktemp("study") / "checkout", cluster)
    run = ended(study, study.start())
    assert run.code == 0, run.output
    return run


def test_each_tuple_and_model_is_measured_once(finished):
    assert len(finished.rows) == 4 + 2
    assert sorted(map(len, finished.members.values())) == [2, 2, 2]
    assert set(itertools.chain(*finished.members.values())) == set(finished.rows)


def test_each_measurement_has_a_gpu_of_its_target_s_kind(finished):
    for job in finished.members:
        assert "gpu:kind:1" in finished.jobs[job]["gpus"]
        assert finished.jobs[job]["node"] in ("n0", "n1")


def test_measurements_on_one_gpu_never_overlap(finished):
    windows = defaultdict(list)
    for job, names in finished.members.items():
        for row in (finished.rows[name] for name in names):
            if row["status"] == "ok":
                windows[finished.jobs[job]["node"]].append((row["started_at"], row["ended_at"]))
    assert sum(map(len, windows.values())) == 4
    assert max(map(len, windows.values())) >= 2
    for of_node in windows.values():
        assert all(start < end for start, end in of_node)
        for (_, end), (start, _) in itertools.pairwise(sorted(of_node)):
            assert end <= start


def test_two_gpus_work_at_once(finished):
    pairs = itertools.combinations([finished.jobs[job] for job in finished.members], 2)
    together_s = [
        seconds_between(max(one["start"], other["start"]), min(one["end"], other["end"]))
        for one, other in pairs
        if one["node"] != other["node"]
    ]
    assert max(together_s) > 1


def test_an_operator_that_takes_for_ever_costs_its_batch_nothing(finished):
    statuses = {name: row["status"] for name, row in finished.rows.items()}
    assert sorted(statuses.values()) == ["ok"] * 4 + ["timeout"] * 2
    for names in finished.members.values():
        assert "ok" in {statuses[name] for name in names}
    assert statuses["endless"] == "timeout"
    for error in {row["error"] for row in finished.rows.values()} - {None}:
        assert error.startswith(f"gave up after {TIMEOUT_S} s")
        assert error.endswith("(measurement.timeout_s)")


@pytest.fixture(scope="module")
def interrupted(finished):
    """The operators measured anew: one job is cancelled, then the controller killed for a while."""
    study, cluster = finished.study, finished.study.cluster
    shutil.rmtree(study.folder / "operators")
    process = study.start()
    endless = next(names for job, names in finished.members.items() if endless_in(names, finished))

    def half_done():
        """The job without the endless operator, once it has measured one of its two tuples."""
        rows = study.rows()
        for job, names in study.members().items():
            if job not in finished.jobs and names != endless and names & set(rows):
                return job
        return None

    wait_until(half_done, 120)
    cancelled = half_done()
    cluster.run("scancel", str(cancelled))
    wait_until(lambda: cluster.jobs()[cancelled]["state"] == "CANCELLED", 20)
    # Slurm saves its state every 5 s. A job that started since then would be held after a restart.
    time.sleep(6)
    running = [job for job, found in cluster.jobs().items() if found["state"] == "RUNNING"]
    cluster.kill_controller()
    time.sleep(12)
    cluster.start_controller()
    run = ended(study, process, finished)
    run.cancelled, run.running = cancelled, running
    return run


def endless_in(names: set[str], run: Run) -> bool:
    return "endless" not in names and "timeout" in {run.rows[name]["status"] for name in names}


def test_a_cancelled_job_is_named(interrupted):
    assert interrupted.code == 1
    assert f"*** JOB {interrupted.cancelled} ON" in interrupted.output


def test_a_cancelled_job_keeps_what_it_had_measured(interrupted):
    missing = interrupted.members[interrupted.cancelled] - set(interrupted.rows)
    assert len(missing) == 1


def test_a_killed_controller_costs_nothing(interrupted):
    assert interrupted.running
    for job in interrupted.running:
        assert interrupted.jobs[job]["state"] == "COMPLETED"
        assert interrupted.members[job] <= set(interrupted.rows)


@pytest.fixture(scope="module")
def resumed(interrupted):
    run = ended(interrupted.study, interrupted.study.start(), interrupted)
    assert run.code == 0, run.output
    return run


def test_the_next_run_measures_only_what_was_in_progress(interrupted, resumed):
    missing = interrupted.members[interrupted.cancelled] - set(interrupted.rows)
    assert list(resumed.members.values()) == [missing]
    assert {name: resumed.rows[name] for name in interrupted.rows} == interrupted.rows
    assert resumed.rows[missing.pop()]["status"] == "ok"


@pytest.fixture(scope="module")
def orphaned(resumed):
    """The operators measured anew, by two runs: Snakemake is killed when a batch is half done."""
    study, cluster = resumed.study, resumed.study.cluster
    shutil.rmtree(study.folder / "operators")
    process = study.start()

    def running():
        return [
            job
            for job, names in study.members().items()
            if job not in resumed.jobs and cluster.jobs()[job]["state"] == "RUNNING"
        ]

    files = study.folder / "operators"
    wait_until(lambda: running() and any(files.glob("*.parquet")), 120)
    process.kill()
    process.communicate()
    orphans = tuple(running())
    run = ended(study, study.start(), resumed)
    run.running = orphans
    return run


def test_the_jobs_of_a_killed_snakemake_run_on_and_the_next_run_has_all_rows(resumed, orphaned):
    assert orphaned.code == 0, orphaned.output
    assert orphaned.running
    # A row that the next run begins to measure, too, is deleted first: the earlier job misses it.
    for job in orphaned.running:
        [log] = (orphaned.study.root / "logs/slurm").rglob(f"{job}.log")
        taken = "output files are missing" in log.read_text()
        assert orphaned.jobs[job]["state"] == ("FAILED" if taken else "COMPLETED")
    assert {name: row["status"] for name, row in orphaned.rows.items()} == {
        name: row["status"] for name, row in resumed.rows.items()
    }


def test_a_job_that_finds_another_device_fails_before_it_measures(finished, orphaned):
    study, results = finished.study, finished.study.root / "results"
    shutil.copytree(results / "local", results / "foreign")
    [device_file] = results.glob("foreign/*/device.json")
    device = json.loads(device_file.read_text())
    device_file.write_text(json.dumps({**device, "device_name": "H100"}))
    tuple_file = next(device_file.parent.glob("operators/*.parquet"))
    tuple_file.unlink()
    foreign = {"targets": {"foreign": {"device": "cpu", "cluster": {"gpu_model": "other"}}}}
    (study.root / "foreign.yaml").write_text(yaml.safe_dump(foreign))
    run = ended(study, study.start("foreign.yaml"), orphaned)
    assert run.code == 1, run.output
    [job] = run.jobs.values()
    assert (job["node"], job["state"]) == ("n2", "FAILED")
    logs = (path.read_text() for path in (study.root / "logs").rglob("*.log"))
    assert any("device: H100 before, " in log for log in logs)
    assert not tuple_file.exists()
