"""One run at a time in a folder."""

import errno
import os
import signal
from contextlib import closing

import pytest
from opcost.errors import OpcostError
from opcost.run_lock import RunLock


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".snakemake/opcost.lock"


def test_who_comes_second_reads_who_holds_the_folder(path):
    with closing(RunLock(path)) as first, closing(RunLock(path)) as second:
        first.hold("snakemake")
        with pytest.raises(
            OpcostError, match=rf"in use by process {os.getpid()} on .* \(snakemake, since .*end it"
        ):
            second.hold("opcost set-aside")


def test_a_run_that_has_ended_leaves_no_lock(path):
    for _ in range(2):
        with closing(RunLock(path)) as lock:
            assert lock.hold("snakemake") is None


def test_a_killed_run_leaves_no_lock_and_is_named(path):
    child = os.fork()
    if child == 0:
        RunLock(path).hold("snakemake")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with closing(RunLock(path)) as lock:
        assert "(snakemake, since" in lock.hold("snakemake")


def test_what_others_wrote_into_the_file_is_not_shown(path):
    path.parent.mkdir()
    path.write_text("process 1 \x1b[2J")
    with closing(RunLock(path)) as lock:
        assert lock.hold("snakemake") is None


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("elsewhere", path)])
def test_what_is_no_file_of_a_lock_is_refused_at_once(path, make):
    path.parent.mkdir()
    make(path)
    with pytest.raises(OpcostError, match=r"opcost.lock cannot be used .*: delete it"):
        RunLock(path).hold("snakemake")


def test_a_file_system_without_locks_is_warned_of(path, monkeypatch, capsys):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with closing(RunLock(path)) as lock:
        assert lock.hold("snakemake") is None
    assert "cannot be locked (No locks available)" in capsys.readouterr().err
