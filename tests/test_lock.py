"""One measurement at a time on a device, and cores of their own for measurements."""

import os
import subprocess
import sys
import tempfile
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest
from opcost.devices import lock
from opcost.devices.lock import exclusive
from opcost.errors import OpcostError
from opcost.workers.isolation import answer_of

PATIENCE_S = 0.1

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="acts as two users")


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    """The folder of the locks, which all users may write to."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name)
        path.chmod(0o1777)
        monkeypatch.setattr(lock, "FOLDER", path)
        yield path


@pytest.fixture
def path(folder):
    return folder / "opcost-cpu.lock"


def refused(key="cpu", timeout_s=PATIENCE_S):
    with pytest.raises(OpcostError) as caught, exclusive(key, "impatient", timeout_s):
        raise AssertionError("must not get in")
    return str(caught.value)


@contextmanager
def held_by_another_process():
    """Holds the lock of `cpu` in a process, and yields that."""
    body = """
    import sys
    from pathlib import Path
    from opcost.devices import lock
    lock.FOLDER = Path(sys.argv[1])
    with lock.exclusive("cpu", "operator tuple 7"):
        print("held", flush=True)
        sys.stdin.readline()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(body), str(lock.FOLDER)],
        env=os.environ | {"PYTHONPATH": "scripts"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def as_user(number, question):
    """What the question answers in a process of that user, who lets nobody else write files."""

    def ask():
        os.umask(0o077)
        os.setgroups([])
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)
        return question()

    return answer_of(ask, timeout_s=30)


def test_a_link_is_not_followed(path, folder):
    path.symlink_to(folder / "made")
    assert f"{path}, cannot be opened" in refused()
    assert not (folder / "made").exists()


def test_a_hostile_text_about_the_holder_is_shown_as_a_literal(path, capfd):
    text = "process 1, \x1b[2J\nnothing to see" + "x" * 1000
    path.write_text(text)
    with path.open() as held:
        lock.fcntl.flock(held, lock.fcntl.LOCK_EX)
        message = refused()
    said = capfd.readouterr().out
    for shown in (said, message):
        assert r"\x1b[2J\nnothing" in shown
        assert "\x1b" not in shown
    assert len(said) < 300


def test_the_temporary_folder_of_a_user_has_nothing_to_do_with_it(path, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("long" * 60)))
    with exclusive("cpu", "patient"):
        assert path.exists()


def test_the_kernel_frees_the_lock_when_its_holder_is_killed():
    with held_by_another_process() as holder:
        assert f"by process {holder.pid}, operator tuple 7" in refused()
    with exclusive("cpu", "the next"):
        pass


@needs_root
def test_users_take_turns_whatever_their_masks(path):
    def get_it():
        with exclusive("cpu", "another user", PATIENCE_S):
            return path.read_text().partition(", ")[2]

    assert as_user(12345, get_it) == "another user"
    assert path.stat().st_uid == 12345
    assert as_user(54321, get_it) == "another user"
    with held_by_another_process() as holder:
        message = as_user(54321, refused)
    assert f"by process {holder.pid}, operator tuple 7" in message


@needs_root
def test_a_file_that_another_user_keeps_to_himself_is_explained(path):
    path.write_text("")
    path.chmod(0o600)
    assert "cannot be opened: Permission denied. All users" in as_user(12345, refused)


CORES = sorted(os.sched_getaffinity(0))
FEW = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


def printed(code, **variables):
    """What Python prints that runs this code, in a process of its own."""
    code = f"import os; from opcost.devices import lock; {code}"
    environment = {"PYTHONPATH": "scripts", **variables}
    completed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return completed.stdout.strip()


SHOW = "print(sorted(os.sched_getaffinity(0)))"


@FEW
def test_what_measures_and_what_does_not_share_no_core():
    assert printed(f"lock.reserve({{'cpu': 1}}); {SHOW}") == str(CORES[:-1])
    assert printed(f"lock.reserve({{'cpu': 1}}); lock.measure_here('cpu'); {SHOW}") == str(
        CORES[-1:]
    )
    assert printed(f"lock.reserve({{'cpu': 1}}); lock.work_anywhere(); {SHOW}") == str(CORES)


@FEW
def test_a_started_process_finds_the_reserved_cores():
    start = "import os; from opcost.devices import lock; "
    for move, expected in (("", CORES[:-1]), ("lock.measure_here('cpu'); ", CORES[-1:])):
        command = f"[sys.executable, '-c', {start + move + SHOW!r}]"
        child = f"import subprocess, sys; subprocess.run({command})"
        assert printed(f"lock.reserve({{'cpu': 1}}); {child}") == str(expected)


def test_without_a_core_to_spare_nothing_is_reserved():
    assert printed(
        f"lock.reserve({{'cpu': {len(CORES)}}}); lock.measure_here('cpu'); {SHOW}"
    ) == str(CORES)


def test_without_a_reservation_nothing_moves():
    assert printed(f"lock.measure_here('cpu'); lock.work_anywhere(); {SHOW}") == str(CORES)


def test_devices_that_are_measured_side_by_side_have_different_cores():
    """On a pretended machine of eight cores."""
    pretend = (
        "os.sched_getaffinity = lambda _: set(range(8)); moves = []; "
        "os.sched_setaffinity = lambda _, to: moves.append(sorted(to)); "
    )
    reserve = "lock.reserve({'cuda:0': 1, 'cuda:1': 2}); "
    measure = "lock.measure_here('cuda:0'); lock.measure_here('cuda:1'); print(moves)"
    assert printed(pretend + reserve + measure) == "[[0, 1, 2, 3, 4], [7], [5, 6]]"
