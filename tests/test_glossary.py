"""The glossary names the columns and the flags, and they use its words."""

import re
from pathlib import Path

import pytest
from opcost.rows import schemas
from opcost.rows.flags import FLAGS

PAGE = (Path(__file__).parent.parent / "docs/reference/glossary.md").read_text(encoding="utf-8")
TERMS, _, AVOIDED = PAGE.partition("## Words to avoid")
NAMED = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"\|([^|]*)\|$", TERMS, re.MULTILINE))))
COLUMNS = {name for columns in schemas.DESCRIPTIONS.values() for name in columns}
TEXTS = [
    *(text for columns in schemas.DESCRIPTIONS.values() for text in columns.values()),
    *(text for flag in FLAGS.values() for text in (flag.meaning, flag.remedy)),
]


def words_to_avoid():
    for cell in re.findall(r"^\| ([^|]+) \| [^|]+ \|$", AVOIDED, re.MULTILINE)[1:]:
        yield from re.sub(r" \(.*\)", "", cell).split(", ")


def test_every_flag_belongs_to_a_term():
    assert set(FLAGS) <= NAMED


def test_terms_name_only_columns_and_flags_that_exist():
    assert NAMED - COLUMNS - set(FLAGS) == set()


@pytest.mark.parametrize("word", list(words_to_avoid()))
def test_columns_and_flags_use_the_words_of_the_glossary(word):
    assert [text for text in TEXTS if re.search(rf"\b{word}\b", text)] == []
