"""One run at a time in a folder."""

import errno
import os
import signal
import stat
from contextlib import closing

import pytest
from opcost.addresses import Addresses
from opcost.commands import main
from opcost.errors import OpcostError
from opcost.run_lock import LOCK, RunLock
from opcost.studies import remember
from opcost.study import load_study


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results/.opcost.lock"


def test_who_comes_second_reads_who_holds_the_folder(path):
    with closing(RunLock(path)) as first, closing(RunLock(path)) as second:
        first.hold("snakemake")
        with pytest.raises(
            OpcostError, match=rf"in use by process {os.getpid()} on .* \(snakemake, since .*end it"
        ):
            second.hold("opcost retry")


def test_folders_that_link_one_folder_of_results_have_one_lock(tmp_path, monkeypatch):
    (tmp_path / "shared").mkdir()
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results").symlink_to(tmp_path / "shared")
    with closing(RunLock(tmp_path / "one" / LOCK)) as first:
        first.hold("snakemake")
        monkeypatch.chdir(tmp_path / "other")
        with closing(RunLock()) as second, pytest.raises(OpcostError, match="in use by process"):
            second.hold("snakemake")


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


def test_other_users_can_lock_the_file_whatever_the_umask(path):
    mask = os.umask(0o077)
    try:
        with closing(RunLock(path)) as lock:
            lock.hold("snakemake")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_the_lock_of_another_user_is_not_to_be_deleted(path, monkeypatch):
    def as_another_user(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("os.open", as_another_user)
    with pytest.raises(OpcostError, match="a run of another user may be using") as refused:
        RunLock(path).hold("snakemake")
    assert "delete" not in str(refused.value)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_of_a_lock_is_refused_at_once(path, make):
    path.parent.mkdir()
    make(path)
    with pytest.raises(OpcostError, match=r"opcost.lock is not a file: move it away"):
        RunLock(path).hold("snakemake")


def test_failures_are_not_forgotten_while_a_run_holds_the_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked = {"models": ["alexnet"], "targets": {"local": {"device": "cpu"}}}
    remember(Addresses(load_study(asked)), asked)
    with closing(RunLock()) as lock:
        lock.hold("snakemake")
        with pytest.raises(SystemExit):
            main.main(["retry"], standalone_mode=False)
    assert "this folder is in use by process" in capsys.readouterr().err
    with closing(RunLock()) as lock:
        assert lock.hold("snakemake") is None


def test_a_file_system_without_locks_is_warned_of(path, monkeypatch, capsys):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    path.parent.mkdir()
    path.write_text("process 7 on node (snakemake)")  # it may be alive
    monkeypatch.setattr("fcntl.flock", no_locks)
    with closing(RunLock(path)) as lock:
        assert lock.hold("snakemake") is None
    assert "cannot be locked (No locks available)" in capsys.readouterr().err
