"""Anyone can recompute an estimate and its interval from the tables, as docs/explanation says."""

import re
import tarfile
from contextlib import chdir
from pathlib import Path

import pytest
from opcost.costs.answers import all_answers
from opcost.costs.comparison import Tables
from opcost.results_folder import ANSWERS, IN_CONTEXT
from opcost.rows import records, schemas

from tests.checkout import REPOSITORY
from tests.golden.adapter import derived

PAGE = REPOSITORY / "docs/explanation/uncertainty.md"
STUDY = REPOSITORY / "tests/golden/default_study.tar.xz"


@pytest.fixture
def tables(tmp_path) -> Tables:
    """Those of a finished study in the current folder."""
    with chdir(tmp_path):
        with tarfile.open(STUDY) as files:
            files.extractall(filter="data")
        found = derived().tables
        records.write(ANSWERS, schemas.ANSWERS, all_answers(found))
        records.write(IN_CONTEXT, schemas.IN_CONTEXT, found.in_context)
        yield found


def test_the_page_recomputes_an_estimate_and_its_interval(tables):
    [code] = re.findall(r"```python\n(.*?)```", Path(PAGE).read_text(), flags=re.DOTALL)
    found: dict[str, object] = {}
    exec(code, found)
    [row] = (row for row in tables.comparison if row["model"] == found["model"])
    names = ("estimate_time_s", "estimate_time_ci_low_s", "estimate_time_ci_high_s")
    assert [found["estimate"], *found["limits"]] == pytest.approx([row[each] for each in names])
