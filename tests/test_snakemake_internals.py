"""A Snakemake that lacks what opcost uses of it, or is unknown, ends with a sentence."""

import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from opcost import snakemake_internals as internals
from snakemake.exceptions import WorkflowError
from snakemake.scheduling import job_scheduler

from tests.checkout import REPOSITORY

WORKFLOW = REPOSITORY / "workflow"


@pytest.mark.parametrize("version", ["9.21.0", "8.30.0", "9.28.0", "10.0.0"])
def test_an_unknown_version_is_refused_and_the_known_ones_named(monkeypatch, version):
    monkeypatch.setattr(internals, "__version__", version)
    with pytest.raises(WorkflowError, match=rf"Snakemake {version} is unknown\. .*pip install"):
        internals.check_version()


@pytest.mark.parametrize("version", [internals.OLDEST, internals.NEWEST, "9.27.9"])
def test_known_versions_and_their_corrections_are_accepted(monkeypatch, version):
    monkeypatch.setattr(internals, "__version__", version)
    internals.check_version()


def test_the_newest_known_version_is_the_pinned_one():
    pins = (REPOSITORY / "requirements.txt").read_text()
    assert f"snakemake=={internals.NEWEST}\n" in pins


def test_the_package_asks_for_a_known_version():
    major, minor, _ = map(int, internals.NEWEST.split("."))
    wanted = f'"snakemake>={internals.OLDEST},<{major}.{minor + 1}"'
    assert wanted in (REPOSITORY / "pyproject.toml").read_text()


def test_something_that_was_renamed_is_missed_before_any_job_starts():
    scheduler = SimpleNamespace(rate_limiter=None)
    scheduler._lock = None
    workflow = SimpleNamespace(scheduler=scheduler, dag=SimpleNamespace(forcefiles=set()))
    with pytest.raises(WorkflowError, match=r"needs workflow\.scheduler\.job_rate_limiter \("):
        internals.check(workflow, started=True)


def test_a_function_that_was_renamed_is_missed(monkeypatch):
    monkeypatch.delattr("snakemake.jobs.Job.is_pipe_or_service_input")
    with pytest.raises(WorkflowError, match=r"snakemake\.jobs\.Job\.is_pipe_or_service_input"):
        internals.check(SimpleNamespace(), started=False)


@pytest.mark.parametrize("moved", [{"replace_prefix": {"results/": "cost/"}}])
def test_a_module_whose_files_another_workflow_moves_is_refused_in_a_sentence(moved, tmp_path):
    (tmp_path / "Snakefile").write_text(
        f'module opcost:\n    snakefile: "{WORKFLOW}/Snakefile"\n    config: {{}}\n'
        + "".join(f"    {key}: {value!r}\n" for key, value in moved.items())
        + "use rule * from opcost as opcost_*\n"
    )
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--dry-run"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    said = run.stdout + run.stderr  # a dry run's messages are on standard output
    assert "puts results/database.parquet of opcost to cost/" in said
    assert "leave out `prefix` and `replace_prefix`" in said
    assert "Traceback" not in said


def test_a_signal_ends_a_run_whose_main_thread_holds_the_lock():
    scheduler = object.__new__(job_scheduler.JobScheduler)
    scheduler._lock, scheduler._open_jobs = threading.Lock(), threading.Semaphore(0)
    internals.end_at_any_signal(SimpleNamespace(scheduler=scheduler))

    def main_thread():
        with scheduler._lock:
            scheduler.exit_gracefully()

    thread = threading.Thread(target=main_thread, daemon=True)
    thread.start()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert scheduler._user_kill == "graceful"


def test_all_that_the_workflow_uses_is_in_the_tables():
    used = {
        name
        for path in [WORKFLOW / "Snakefile", *WORKFLOW.rglob("*.smk")]
        for name in re.findall(r"\bworkflow\.((?!rst)[a-z]\w*)", path.read_text())
    }
    listed = {name.split(".")[0] for name in {**internals.CHANGED, **internals.READ}}
    assert used <= listed


def test_snakemake_still_asks_what_is_patched():
    from snakemake import jobs

    assert Path(jobs.__file__).read_text().count("is_pipe_or_service_input(") == 2
    assert "if self.job_rate_limiter is not None:" in Path(job_scheduler.__file__).read_text()
