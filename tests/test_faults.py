"""The command that tries faults: it knows all of them, and judges some that take seconds."""

import json
import subprocess
import sys

import pytest

from tests.checkout import REPOSITORY
from tests.faults.__main__ import FAULTS

pytestmark = pytest.mark.workflow

FEW = ("31.1", "31.2", "31.3")


def try_faults(tmp_path, only):
    table = tmp_path / "table.json"
    command = [sys.executable, "-m", "tests.faults", "--only", ",".join(only)]
    done = subprocess.run(
        [*command, "--json", table], cwd=REPOSITORY, capture_output=True, text=True, timeout=300
    )
    return done, json.loads(table.read_text())


def test_faults_are_tried_and_judged(tmp_path):
    done, rows = try_faults(tmp_path, FEW)
    assert [row["number"] for row in rows] == list(FEW)
    assert {row["verdict"] for row in rows} == {"good"}, done.stdout
    assert "3 faults: 3 good, 0 poor, 0 BAD, 0 by hand" in done.stdout


def test_every_fault_has_a_number_of_its_own():
    numbers = [each.number for each in FAULTS]
    assert len(numbers) == len(set(numbers)) == 33
