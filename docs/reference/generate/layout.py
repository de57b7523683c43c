"""Tables and pages of Markdown."""

import re
from collections.abc import Sequence

Row = tuple[str, ...]

_NOTE = "<!-- Made by docs/reference/generate (make docs): changes here are lost. -->"


def table(header: Row, rows: Sequence[Row]) -> str:
    """A table."""
    lines = [header, ("---",) * len(header), *rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def page(title: str, *parts: str) -> str:
    """A page of these parts, with empty lines between them."""
    return "\n\n".join([f"# {title}", _NOTE, *parts]) + "\n"


def anchor(title: str) -> str:
    """The anchor of a heading, as Git hosts make it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
