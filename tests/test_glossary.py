"""The glossary is short, names columns and flags that exist, and pages and flags use its words."""

import re

import pytest
from opcost.rows import schemas
from opcost.rows.flags import FLAGS

from tests.documents import ROOT, pages

GLOSSARY = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
MOST_TERMS = 45
MOST_WORDS = 900

REPLACED = {
    "again": "anew",
    "another tenant": "neighbours?",
    "call overhead": "what calls cost",
    "cold code": "evicted|displaced|lost code",
    "end-to-end": "whole models?",
    "estimate and measurement differ": "part company",
    "in context": "in place",  # PyTorch's in-place operators have a hyphen
    "limited": "held back",
    "measuring time": "device time",
    "reference": "usual speeds?",
    "requested": "asked for",
    "run": "executions?|replicates?",
    "run-to-run variation": "scatter",
    "show": "tells?|told",
    "unknown": "not known",
    "undisturbed": "quiet values?|silence",
}
"""Word of the vocabulary -> what it replaced, as a regular expression."""

FROM_CODE = {"columns.md", "command_line.md", "configuration.md", "flags.md"}
"""Generated pages, whose words are those of the code."""

PAGES = [
    page
    for page in pages()
    if page.parent == ROOT or (page.is_relative_to(ROOT / "docs") and page.name not in FROM_CODE)
]


def replaced_words(text):
    """The words of a text that the vocabulary replaced, each with the word to write."""
    return [
        f"{found}: write {word}"
        for word, pattern in REPLACED.items()
        for found in re.findall(rf"\b(?:{pattern})\b", text, re.IGNORECASE)
    ]


def test_the_glossary_is_short():
    assert len(re.findall(r"^- \*\*", GLOSSARY, re.MULTILINE)) <= MOST_TERMS
    assert len(GLOSSARY.split()) <= MOST_WORDS


def test_terms_name_only_columns_and_flags_that_exist():
    columns = {name for described in schemas.DESCRIPTIONS.values() for name in described}
    assert set(re.findall(r"`(\w+)`", GLOSSARY)) - columns - set(FLAGS) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_the_vocabulary(page):
    assert replaced_words(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", sorted(FLAGS))
def test_flags_use_the_vocabulary(name):
    assert replaced_words(f"{FLAGS[name].meaning}\n{FLAGS[name].remedy}") == []


@pytest.mark.parametrize("record", sorted(schemas.DESCRIPTIONS))
def test_columns_use_the_vocabulary(record):
    assert replaced_words("\n".join(schemas.DESCRIPTIONS[record].values())) == []
