"""One measurement at a time on a device; what other users put in its place is left alone."""

import errno
import os
import re
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

VICTIM = "a file that is none of opcost's business"
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


@pytest.fixture
def victim(folder):
    path = folder / "victim"
    path.write_text(VICTIM)
    path.chmod(0o600)
    return path


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


@pytest.mark.parametrize("make", ["symlink_to", "hardlink_to"])
def test_a_link_is_not_followed(path, victim, make):
    getattr(path, make)(victim)
    assert re.search(r"opcost-cpu\.lock, cannot be used: .*link", refused())
    assert victim.read_text() == VICTIM


def test_a_link_to_a_file_that_does_not_exist_makes_none(path, folder):
    path.symlink_to(folder / "made")
    assert "cannot be used" in refused()
    assert not (folder / "made").exists()


def test_a_file_that_was_moved_there_is_not_written_to(path, victim):
    victim.rename(path)
    assert "opcost did not write its content" in refused()
    assert path.read_text() == VICTIM


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_refused(path, make):
    make(path)
    assert "cannot be used" in refused()


@pytest.mark.parametrize("key", ["../victim", "a/b", "", "x" * 101, "cpu\n", "cpu\0"])
def test_the_name_of_a_device_leads_nowhere_else(key):
    assert f"names the lock {key!r}" in refused(key)


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


def test_a_file_that_was_removed_meanwhile_locks_nothing(path, monkeypatch):
    flock, opened = lock.fcntl.flock, []

    def remove_and_lock(descriptor, operation):
        if not opened:
            path.unlink()
        opened.append(descriptor)
        flock(descriptor, operation)

    monkeypatch.setattr(lock.fcntl, "flock", remove_and_lock)
    with exclusive("cpu", "patient"):
        assert len(opened) == 2
        monkeypatch.undo()
        monkeypatch.setattr(lock, "FOLDER", path.parent)
        refused()


@pytest.mark.parametrize("free_bytes", [0, 5])
def test_a_full_disk_is_explained_and_the_file_stays_usable(path, monkeypatch, free_bytes):
    def write_what_fits(descriptor, content, offset):
        if offset >= free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, content[: free_bytes - offset], offset)

    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", write_what_fits)
    message = refused()
    assert f"{path}, cannot be written: No space left on device. Free space in" in message
    monkeypatch.setattr(os, "pwrite", write)
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
def test_a_file_that_another_user_keeps_to_himself_is_named_with_its_owner(path):
    path.write_text("")
    path.chmod(0o600)
    message = as_user(12345, refused)
    assert "Permission denied (owner root, mode -rw-------)" in message
    assert "must delete it" in message
