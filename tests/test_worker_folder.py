"""The folder of warm workers is this user's alone, and keeps nothing of the dead."""

import os
import re
import socket
import tempfile

import pytest
from opcost.workers.folder import NotOurs, connect, listen, own_folder, starting


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"opcost-workers-{os.getuid()}"


def can_connect(path):
    with socket.socket(socket.AF_UNIX) as connection:
        return connect(connection, path)


def test_nobody_else_can_look_into_it(temporary):
    for mask in (0o000, 0o022, 0o077):
        before = os.umask(mask)
        try:
            assert own_folder() == temporary
        finally:
            os.umask(before)
        assert temporary.stat().st_mode & 0o777 == 0o700
        temporary.rmdir()


def test_a_link_is_refused_wherever_it_leads(temporary, tmp_path):
    temporary.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotOurs, match=r"is a link or a file.*delete it, or set TMPDIR"):
        own_folder()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    with pytest.raises(NotOurs, match="is a link or a file"):
        own_folder()


def test_a_folder_that_others_may_enter_is_refused(temporary):
    temporary.mkdir()
    temporary.chmod(0o755)
    with pytest.raises(NotOurs, match=re.escape("is open to others (drwxr-xr-x)")):
        own_folder()


@pytest.mark.skipif(os.getuid() != 0, reason="makes a folder of another user")
def test_a_folder_of_another_user_is_refused(temporary):
    temporary.mkdir(mode=0o700)
    os.chown(temporary, 12345, 12345)
    with pytest.raises(NotOurs, match="belongs to user 12345"):
        own_folder()


def test_a_long_path_is_no_obstacle(tmp_path):
    folder = tmp_path / ("long" * 50)
    folder.mkdir()
    here = os.getcwd()
    with listen(folder / "a.socket"):
        assert can_connect(folder / "a.socket")
    assert not can_connect(folder / "a.socket")
    assert os.getcwd() == here


def test_what_dead_servers_left_is_removed_when_one_starts(tmp_path):
    listen(tmp_path / "dead.socket").close()
    with listen(tmp_path / "alive.socket"), starting(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == ["alive.socket"]
