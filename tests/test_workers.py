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
    """Where this module's servers live; they end when it ends."""
    path = tmp_path_factory.mktemp("workers")
    yield path
    subprocess.run(["pkill", "-f", f"opcost.workers.server {path}"], check=False)


@pytest.fixture
def job(tmp_path, folder):
    """Starts a module with that body of `main`, as a rule of the workflow does."""

    def start(body, *arguments, workers="warm", **variables):
        name = f"job_{len([*folder.glob('*.py')])}"
        body = textwrap.indent(textwrap.dedent(body).strip(), "    ")
        (folder / f"{name}.py").write_text(
            "import os, sys, time\nfrom pathlib import Path\nfrom opcost import workers\n"
            f"from opcost.workers.client import run\n\n\ndef main(words):\n{body}\n\n\n"
            f"if __name__ == '__main__':\n    run({name!r}, main)\n"
        )
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{folder}:{SCRIPTS}",
            "TMPDIR": str(folder),
            **variables,
        }
        warm = ["--warm", str(os.getpid())] if workers == "warm" else []
        return subprocess.Popen(
            [sys.executable, "-P", "-m", name, *warm, *arguments],
            env=environment,
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


@pytest.mark.parametrize(("workers", "imported"), [("warm", "True"), ("plain", "False")])
def test_a_script_does_the_same_in_a_worker_as_by_itself(job, workers, imported, tmp_path):
    process = job(
        """
        print(workers.kind, "torch" in sys.modules)
        print(words, os.getcwd(), os.environ["GREETING"])
        print("a warning", file=sys.stderr)
        sys.exit(7)
        """,
        "one",
        "two words",
        workers=workers,
        GREETING="hello",
    )
    status, output, errors = result(process)
    assert status == 7
    assert output == f"{workers} {imported}\n['one', 'two words'] {tmp_path} hello\n"
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


def test_a_killed_server_is_replaced_and_the_job_done_again(job, tmp_path):
    body = """
    first = not Path("before").exists()
    Path("before").touch()
    if first:
        os.kill(os.getppid(), 9)
        time.sleep(60)
    print("done")
    """
    assert result(job(body)) == (0, "done\n", "")


def test_jobs_of_another_environment_have_another_server_which_dying_is_not_asked_again(
    job, folder
):
    """A killed process drops its connections, but listens until its last thread has ended."""
    here, same = (int(result(job("print(os.getppid())"))[1]) for _ in range(2))
    kind = {"OMP_NUM_THREADS": "2"}
    folder_before = set(folder.rglob("*.socket"))
    killed = int(result(job("print(os.getppid())", **kind))[1])
    assert here == same != killed
    (path,) = set(folder.rglob("*.socket")) - folder_before
    os.kill(killed, signal.SIGKILL)
    dying = textwrap.dedent(
        f"""
        import os, socket, time
        os.unlink({str(path)!r})
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind({str(path)!r})
            listener.listen()
            print(flush=True)
            listener.accept()[0].close()
            time.sleep(1)
        """
    )
    with subprocess.Popen([sys.executable, "-c", dying], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert result(job("print('done')", **kind)) == (0, "done\n", "")


def test_a_job_that_kills_each_server_says_so(job):
    status, _, errors = result(job("os.kill(os.getppid(), 9)\ntime.sleep(60)"))
    assert status == 1
    assert "no warm worker" in errors
    assert "workers: plain" in errors


def test_a_server_that_cannot_start_says_why(job, tmp_path, folder):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch in this place')")
    path = f"{tmp_path}:{folder}:{SCRIPTS}"
    status, _, errors = result(job("print('unreachable')", PYTHONPATH=path))
    assert status == 1
    assert "no torch in this place" in errors


def server(socket, arguments):
    code = (
        "from pathlib import Path; from opcost.workers.server import Server; "
        f"Server(Path({str(socket)!r})).serve({arguments})"
    )
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    return subprocess.Popen([sys.executable, "-c", code], env=environment)


def test_an_idle_server_ends_itself(tmp_path):
    assert server(tmp_path / "socket", "idle_s=0.2").wait(timeout=30) == 0
    assert not (tmp_path / "socket").exists()


def test_a_server_ends_with_the_run_that_it_serves(tmp_path):
    run = subprocess.Popen(["sleep", "100"])
    process = server(tmp_path / "socket", f"run={run.pid}")
    wait_for(tmp_path / "socket")
    assert process.poll() is None
    run.kill()
    run.wait()
    assert process.wait(timeout=30) == 0
