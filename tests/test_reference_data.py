"""Reference data come with opcost, say what they are, and tell nothing about people."""

from pathlib import Path

import pytest
from opcost.database import REFERENCE, default_databases

ROOT = Path(__file__).parent.parent


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A current folder without a study."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_in_a_clone_they_are_those_of_the_data_folder(elsewhere):
    assert REFERENCE.resolve() == ROOT / "data" / "reference"
    expected = sorted(path.name for path in (ROOT / "data" / "reference").glob("*.parquet"))
    assert [path.name for path in default_databases()] == expected


def test_the_study_of_the_current_folder_comes_before_them(elsewhere):
    reference = default_databases()
    own = Path("results/database.parquet")
    own.parent.mkdir()
    own.touch()
    assert default_databases() == [own, *reference]
