"""The registry of flags is the only place that knows them."""

import ast

import pytest
from opcost.rows import flags
from opcost.rows.flags import FLAGS

from tests.documents import ROOT

PACKAGE = ROOT / "scripts/opcost"
REGISTRY = PACKAGE / "rows/flags.py"
OTHER_WORDS = {
    ("disturbed", "report/row_details.py"),
    ("imported", "databases/merging.py"),
    ("imported", "imports/importer.py"),
    ("value_dependent", "tuples/tuple_record.py"),
}
"""Names of other things, spelled like a flag: a kind of batch, a setting, a column."""


def modules():
    return [path for path in PACKAGE.rglob("*.py") if path != REGISTRY]


def test_no_other_module_spells_the_name_of_a_flag():
    found = {
        (node.value, path.relative_to(PACKAGE).as_posix())
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in FLAGS
    }
    assert found == OTHER_WORDS


@pytest.mark.parametrize("name", FLAGS)
def test_every_flag_is_raised_somewhere(name):
    assert getattr(flags, name.upper()) == name
    assert any(name.upper() in path.read_text() for path in modules())


def test_a_passing_physical_cause_spoils_a_trial():
    assert flags.spoiling([flags.DRIFTING, flags.THROTTLED]) == {flags.THROTTLED}
    assert flags.spoiling([flags.DRIFTING, flags.POWER_CAPPED, flags.OTHER_PROCESS]) == set()
