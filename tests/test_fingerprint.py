"""A note holds as long as a table would come out as it is."""

import json
import os
import shutil
import time

import pytest
from opcost.errors import OpcostError
from opcost.fingerprint import clamp_future_times, content, forget, identity, is_current, noted, of


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A table `out`, made from `first` and `second`, with its note."""
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        (tmp_path / name).write_text("input")
    with noted(".made/note.json", "question", ["first", "second"], ["out", ".made/note.json"]):
        (tmp_path / "out").write_text("output")
    time.sleep(0.05)  # the file system's clock has steps
    return tmp_path


def current(folder, asked="question", inputs=None):
    return is_current(folder / ".made/note.json", asked, inputs)


def same_age(path, other):
    os.utime(path, ns=(0, other.stat().st_mtime_ns))


def test_a_table_whose_inputs_are_the_same_is_current(made):
    assert current(made)
    assert current(made, inputs=[made.joinpath("first").relative_to(made), "second"])


def test_a_table_may_be_touched(made):
    os.utime(made / "out")
    assert current(made)


def rewrite(path):
    """As large, and as old as before."""
    shutil.copy2(path, "copy")
    path.write_text("INPUT")
    same_age(path, path.with_name("copy"))


def exchange(path):
    """By a move: as large, and as old."""
    other = path.with_name("other")
    other.write_text("INPUT")
    same_age(other, path)
    other.rename(path)


@pytest.mark.parametrize("change", [rewrite, exchange, lambda path: path.unlink()])
def test_a_table_whose_input_is_another_file_is_not_current(made, change):
    change(made / "first")
    assert not current(made)


def test_a_table_that_was_restored_is_not_current_however_new_it_is(made):
    (made / "out").write_text("earlier")
    assert not current(made)


def test_a_table_of_which_something_else_is_asked_is_not_current(made):
    assert not current(made, asked="another")
    assert not current(made, inputs=["first", "second", "third"])
    assert not current(made, inputs=["first"])


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"asked": "question"}', "\x00", pytest.param("[" * 200_000, id="deep")],
)
def test_a_damaged_note_says_nothing(made, text):
    (made / ".made/note.json").write_text(text)
    assert not current(made)


def test_a_pipe_in_place_of_a_note_is_not_waited_for(made):
    (made / ".made/note.json").unlink()
    os.mkfifo(made / ".made/note.json")
    assert not current(made)


@pytest.mark.parametrize("output", ["/dev/zero", "pipe", "../elsewhere", ".made/../../elsewhere"])
def test_a_note_that_names_what_is_no_table_of_this_folder_says_nothing(made, output):
    os.mkfifo(made / "pipe")
    elsewhere = made.parent / "elsewhere"
    elsewhere.write_text("secret")
    note = made / ".made/note.json"
    fingerprint = content(elsewhere) if "elsewhere" in output else ""
    changed = json.loads(note.read_text())
    changed["outputs"] = {output: fingerprint}
    note.write_text(json.dumps(changed))
    assert not current(made)


def test_a_note_is_deleted_unless_it_is_a_folder(made):
    note = made / ".made/note.json"
    for _ in range(2):
        forget(note)
        assert not note.exists()
    note.mkdir()
    with pytest.raises(OpcostError, match="is a folder, not a file: move it away"):
        forget(note)


def test_files_of_the_future_get_the_time_of_now_and_what_links_point_to_keeps_its_own(tmp_path):
    foreign, own = tmp_path / "foreign", tmp_path / "results/own"
    own.parent.mkdir()
    for path in (foreign, own):
        path.write_text("")
        os.utime(path, (2e9, 2e9))
    (own.parent / "link").symlink_to(foreign)
    clamp_future_times(own.parent)
    assert foreign.stat().st_mtime == 2e9
    assert own.stat().st_mtime <= time.time()


def test_a_table_whose_making_failed_has_no_note(made):
    (made / ".made/note.json").unlink()
    with (
        pytest.raises(OSError, match="space"),
        noted(".made/note.json", "question", ["first"], ["out"]),
    ):
        raise OSError("no space left")
    assert not current(made)


def test_an_input_that_changes_while_the_table_is_made_makes_it_outdated(made):
    with noted(".made/note.json", "question", ["first"], ["out"]):
        (made / "first").write_text("changed")
    assert not current(made)


def test_missing_files_have_no_fingerprint(tmp_path):
    assert identity(tmp_path / "none") == content(tmp_path / "none") == ""


def test_fingerprints_of_values_tell_them_apart():
    assert of({"b": 1, "a": 2}) == of({"a": 2, "b": 1}) != of({"a": 2})
