"""Runs that are interrupted, killed, or meet one another on a device."""

import contextlib
import itertools
import os
import signal
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq
from opcost.runs.workflow import _code, _interruptible

from tests.checkout import configure, edit, running, stamps, wait_until
from tests.warm_python import with_warm_jobs


def test_the_same_command_resumes_an_interrupted_and_a_killed_run(prepared):
    # Long enough that measurements remain when the signal arrives.
    edit(
        prepared.root / "tests/study/config.yaml", lambda c: c["measurement"].update(min_time_s=0.5)
    )
    with running(prepared, measured=1) as run:
        os.killpg(run.pid, signal.SIGINT)  # as Ctrl-C does
        output, _ = run.communicate(timeout=120)
    assert run.returncode == 1, output.decode()
    assert "What was measured is kept: the same command goes on from there." in output.decode()
    interrupted = stamps(prepared)
    assert 1 <= len(interrupted) < 5
    with running(prepared, measured=len(interrupted) + 1) as run:
        run.kill()
    before = stamps(prepared)
    assert interrupted.items() <= before.items()
    assert len(interrupted) < len(before) < 6
    started = prepared.started()
    # A job outlives the killed Snakemake, and may have finished meanwhile.
    assert started.count("benchmark_operator") <= 6 - len(before)
    assert before.items() <= stamps(prepared).items()
    assert len(stamps(prepared)) == 6


def test_a_second_run_beside_a_live_one_is_refused_and_the_first_keeps_no_thread_of_a_job(prepared):
    with running(prepared, measured=1) as run:
        threads = Path(f"/proc/{run.pid}/task")
        early = len(list(threads.iterdir()))
        os.kill(run.pid, signal.SIGSTOP)  # it lives, and cannot end before the others start
        assert prepared.run("--dry-run").returncode == 0
        for _ in range(2):
            second = prepared.run()
            assert second.returncode == 1
            assert f"this folder is in use by process {run.pid} on" in second.stderr
        os.kill(run.pid, signal.SIGCONT)
        wait_until(lambda: len(stamps(prepared)) == 6)
        assert len(list(threads.iterdir())) < early + 3
        assert run.wait() == 0


def test_a_link_in_the_folder_of_snakemakes_state_is_not_followed(checkout):
    victim = checkout.root / "victim"
    victim.write_text("untouched")
    (checkout.root / "results").mkdir(exist_ok=True)
    (checkout.root / "results/.opcost.lock").symlink_to(victim)
    refused = checkout.run()
    assert refused.returncode == 1
    assert "opcost.lock is not a file" in refused.stdout + refused.stderr
    assert victim.read_text() == "untouched"


def test_two_runs_on_one_device_take_turns_and_say_so(prepared, tmp_path):
    configure(prepared, models=["tiny_mlp"])
    (prepared.folder / "device.json").unlink()  # to identify it takes seconds
    checkouts = [prepared, prepared.copied(tmp_path / "there")]
    runs = [
        subprocess.Popen(
            checkout.command(),
            cwd=checkout.root,
            env=with_warm_jobs(os.environ),
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for checkout in checkouts
    ]
    outputs = [b"".join(run.communicate(timeout=300)).decode() for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    rows = [
        row
        for checkout in checkouts
        for kind in ("operators", "models")
        for path in checkout.folder.glob(f"{kind}/*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]
    assert len(rows) == 2 * (3 + 1)
    trials = sorted((row["started_at"], row["ended_at"]) for row in rows)
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(trials))
    assert any("waiting for the device, held by process" in output for output in outputs)


def test_of_what_is_killed_only_the_measurement_in_progress_is_lost(prepared):
    """Killed in turn: a measurement's process, its job's, and the server that both come from."""
    configure(prepared, models=["tiny_mlp"])
    edit(
        prepared.root / "tests/study/config.yaml",
        lambda config: config["measurement"].update(min_time_s=0.5, max_time_s=1.0),
    )
    run = subprocess.Popen(
        prepared.command(), cwd=prepared.root, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    for kind in ("measurement", "job", "server"):
        killed = wait_until(lambda: processes(run.pid))[kind]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda killed=killed: killed not in processes(run.pid).values())
    output = b"".join(run.communicate(timeout=300)).decode()
    assert run.returncode == 1, output
    assert (
        "the worker was killed by SIGKILL: the system may have run out of memory; close" in output
    )
    paths = [
        *prepared.folder.glob("operators/*.parquet"),
        *prepared.folder.glob("models/*.parquet"),
    ]
    rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
    assert sorted(row["status"] for row in rows) == ["crashed"] + ["ok"] * 2
    [crashed] = [row for row in rows if row["status"] == "crashed"]
    assert "SIGKILL" in crashed["error"]
    again = [rule for rule in prepared.started() if rule.startswith("benchmark")]
    assert len(again) == 1, "the job that was killed"


def processes(run: int) -> dict[str, int]:
    """What a measurement of a run consists of: a server, its job, and the measurement itself."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (path / "cmdline").read_bytes()
            if b"opcost.workers.server" in command and command.endswith(f"\0{run}\0".encode()):
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    parents[int(path.name)] = int(parent)
    for measurement, job in parents.items():
        if parents.get(job) in parents:
            return {"server": parents[job], "job": job, "measurement": measurement}
    return {}


def test_a_request_to_terminate_ends_the_jobs_as_well_for_which_snakemake_would_wait():
    waits_for_its_job = "trap : TERM; sleep 60 & job=$!; while kill -0 $job; do wait $job; done"
    signals = []
    with (
        subprocess.Popen(["sh", "-c", waits_for_its_job]) as process,
        _interruptible(process, signals.append),
    ):
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        process.wait(30)
    assert signals == [signal.SIGTERM]
    assert _code(1, signals) == 128 + signal.SIGTERM
