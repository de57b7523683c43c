"""The repository's Markdown pages, and the code in them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
COMMANDS = {"bash", "cd", "git", "make", "opcost", "pip", "python", "snakemake"}


@dataclass(frozen=True)
class Block:
    """A block of code: its page, the line where it begins, its language, its text."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page, but for what a build makes."""
    patterns = ("*.md", "config/*.md", "data/**/*.md", "docs/**/*.md")
    found = [page for pattern in patterns for page in ROOT.glob(pattern)]
    return sorted(page for page in found if "_build" not in page.parts)


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page.

    Those without a language are commands (`sh`), commands with what they print (`console`), or that
    alone (`text`).
    """
    for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
        if token.type in ("fence", "code_block"):
            language = token.info.split()[0] if token.info else unnamed(token.content)
            yield Block(page, token.map[0] + 1, language, token.content)


def unnamed(text: str) -> str:
    """The language of a block that names none."""
    if text.startswith("$ "):
        return "console"
    words = [word for word in text.split() if "=" not in word]
    return "sh" if words and words[0].removeprefix(".venv/bin/") in COMMANDS else "text"


def commands_in_text(page: Path) -> Iterator[Block]:
    """Commands that stand in a sentence or in a table."""
    for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            words = child.content.split()
            if child.type == "code_inline" and len(words) > 1 and words[0] in COMMANDS:
                yield Block(page, token.map[0] + 1, "sh", child.content)


def in_language(*languages: str) -> list[Block]:
    """The blocks of all pages in one of these languages."""
    return [block for page in pages() for block in blocks(page) if block.language in languages]
