"""Warm workers: processes that need not import, of their own, and what survives which death."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the modules of jobs lie."""
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def started(folder):
    """Starts a run that offers workers: its process, which ends with the tests, and its socket."""
    runs = []

    def start(**variables):
        code = (
            "import sys; from opcost.workers.server import offer_workers\n"
            "print(offer_workers(), flush=True); sys.stdin.read()"
        )
        run = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**environment(folder), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        runs.append(run)
        return run, run.stdout.readline().strip()

    yield start
    for run in runs:
        run.communicate()


@pytest.fixture(scope="module")
def warm(started):
    """The socket of a run."""
    return started()[1]


def environment(folder):
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{folder}:{SCRIPTS}",
        "TMPDIR": str(folder),
    }


@pytest.fixture
def job(tmp_path, folder, warm):
    """Starts a module with that body of `main`, as a rule of the workflow does."""

    def start(body, *arguments, socket=warm, **variables):
        name = f"job_{len([*folder.glob('*.py')])}"
        body = textwrap.indent(textwrap.dedent(body).strip(), "    ")
        (folder / f"{name}.py").write_text(
            "import os, sys, time\nfrom pathlib import Path\nfrom opcost import workers\n"
            f"from opcost.workers.client import run\n\n\ndef main(words):\n{body}\n\n\n"
            f"if __name__ == '__main__':\n    run({name!r}, main)\n"
        )
        words = ["--warm", socket] if socket else []
        return subprocess.Popen(
            [sys.executable, "-P", "-m", name, *words, *arguments],
            env={**environment(folder), **variables},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def result(process):
    output, errors = process.communicate(timeout=100)
    return process.returncode, output, errors


def wait_for(path):
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.01)


def is_alive(process_id):
    try:
        return "Z" not in Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("kind", ["warm", "plain"])
def test_a_script_does_the_same_in_a_worker_as_by_itself(job, warm, kind, tmp_path):
    process = job(
        """
        print(workers.kind, "torch" in sys.modules)
        print(words, os.getcwd(), os.environ["GREETING"])
        print("a warning", file=sys.stderr)
        sys.exit(7)
        """,
        "one",
        "two words",
        socket=warm if kind == "warm" else None,
        GREETING="hello",
    )
    status, output, errors = result(process)
    assert status == 7
    assert output == f"{kind} {kind == 'warm'}\n['one', 'two words'] {tmp_path} hello\n"
    assert errors == "a warning\n"


def test_nothing_that_takes_long_is_imported_by_each_job(job):
    """What extraction, measurement and a written row need, the server has imported for all."""
    body = """
    import yaml
    from opcost.study import load_study

    repository = Path(words[0])
    models = repository / "tests/study/models"
    config = yaml.safe_load((repository / "tests/study/config.yaml").read_text())
    config |= {"models": ["tiny_cnn"], "model_directory": str(models)}
    study = load_study(config)

    before = {name.partition(".")[0] for name in sys.modules}
    from opcost.devices.processor import CpuDevice
    from functools import partial
    from opcost.energy.meters import open_meter
    from opcost.measuring import benchmark
    from opcost.measuring.station import Station
    from opcost.measuring.subjects import OperatorSubject
    from opcost.rows import records, schemas
    from opcost.tuples.extraction import extract_model_tuples

    extracted = extract_model_tuples(study.models["tiny_cnn"], models)
    device = CpuDevice()
    record = extracted.tuples[0]
    meter = partial(open_meter, "cpu", None)
    station = Station("local", study.conditions["local"], device, device.watch(1.0), meter)
    row = benchmark.measure(OperatorSubject(record), station)
    records.write(Path("row.parquet"), schemas.OPERATOR, [row])
    late = {name.partition(".")[0] for name in sys.modules} - before - sys.stdlib_module_names
    print(row["status"], late - {"tiny"})
    """
    assert result(job(body, str(SCRIPTS.parent))) == (0, "ok set()\n", "")


def test_no_worker_sees_what_another_left_in_memory(job):
    body = "print(getattr(workers, 'left', 'nothing'))\nworkers.left = 'something'"
    assert [result(job(body))[1] for _ in range(2)] == ["nothing\n", "nothing\n"]


def test_an_exception_is_shown_and_fails_the_job(job):
    status, _, errors = result(job("raise ValueError('spoilt')"))
    assert status == 1
    assert "ValueError: spoilt" in errors


def test_a_killed_worker_fails_its_job_alone(job):
    status, _, errors = result(job("os.kill(os.getpid(), 9)"))
    assert status == 128 + signal.SIGKILL
    assert "the worker was killed by SIGKILL" in errors
    assert result(job("print('next')")) == (0, "next\n", "")


def test_a_worker_dies_with_its_client(job, tmp_path):
    process = job("Path('id').write_text(str(os.getpid()))\ntime.sleep(60)")
    wait_for(tmp_path / "id")
    time.sleep(0.1)
    worker = int((tmp_path / "id").read_text())
    process.kill()
    deadline = time.monotonic() + 10
    while is_alive(worker):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_job_whose_server_is_killed_does_without_and_the_next_has_another(job, started):
    _, socket = started()
    body = """
    print(workers.kind, flush=True)
    if workers.kind == "warm":
        os.kill(os.getppid(), 9)
        time.sleep(60)
    """
    assert result(job(body, socket=socket)) == (0, "warm\nplain\n", "")
    assert result(job("print(workers.kind)", socket=socket)) == (0, "warm\n", "")


def test_without_its_run_a_job_does_its_work_itself(job, tmp_path):
    process = job("print(workers.kind)", socket=str(tmp_path / "socket"))
    assert result(process) == (0, "plain\n", "")


def test_a_server_that_cannot_start_says_why_and_the_job_does_without(job, started, folder):
    (folder / "broken").mkdir()
    (folder / "broken" / "torch.py").write_text("raise ImportError('no torch in this place')")
    run, socket = started(PYTHONPATH=f"{folder / 'broken'}:{SCRIPTS}")
    assert result(job("print(workers.kind)", socket=socket)) == (0, "plain\n", "")
    assert "no torch in this place" in result(run)[2]


def test_a_server_ends_with_the_run_that_started_it_and_lets_jobs_finish(job, started, tmp_path):
    run, socket = started()
    process = job(
        "Path('id').write_text(str(os.getppid()))\ntime.sleep(1)\nprint('done')", socket=socket
    )
    wait_for(tmp_path / "id")
    run.kill()
    assert result(process) == (0, "done\n", "")
    deadline = time.monotonic() + 10
    server = int((tmp_path / "id").read_text())
    while is_alive(server) or Path(socket).parent.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("length", [0, 100])
def test_only_this_user_can_reach_a_server_wherever_temporary_files_lie(started, tmp_path, length):
    (tmp_path / ("long" * (length // 4))).mkdir(exist_ok=True)
    before = os.umask(0)
    try:
        _, socket = started(TMPDIR=str(tmp_path / ("long" * (length // 4))))
    finally:
        os.umask(before)
    assert Path(socket).parent.stat().st_mode & 0o777 == 0o700
