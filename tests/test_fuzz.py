"""A second of each kind of damage: no traceback, and no damaged or impossible value passes."""

import random

import pyarrow.parquet as pq
import pytest
from opcost.errors import OpcostError
from opcost.rows import records, schemas

from tests.fuzz import subjects
from tests.fuzz.kinds import KINDS
from tests.fuzz.tally import fuzz


@pytest.mark.parametrize("name", KINDS)
def test_damaged_and_impossible_files_are_refused_in_words(name, tmp_path):
    tally = fuzz(name, KINDS[name], tmp_path, seconds=1, seed="tests")
    assert tally.cases > 0
    assert tally.tracebacks + tally.passed == [], "\n".join(tally.lines())


def test_no_bit_of_a_file_changes_without_notice(tmp_path):
    path = subjects.row_file(tmp_path)
    content, generator = path.read_bytes(), random.Random(0)
    for position in generator.sample(range(len(content)), 300):
        changed = bytearray(content)
        changed[position] ^= 1 << generator.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(
            OpcostError, match=f"{path.name} is not a readable Parquet file.*delete"
        ):
            records.read(path, schemas.OPERATOR)


def test_rows_that_another_program_copied_are_read(tmp_path):
    path = subjects.row_file(tmp_path)
    expected = records.read(path, schemas.OPERATOR)
    pq.write_table(pq.read_table(path), path)
    assert records.read(path, schemas.OPERATOR).equals(expected)
