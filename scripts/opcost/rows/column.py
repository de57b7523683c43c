"""A column of a record, and the part that it plays."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import pyarrow as pa


class Role(Enum):
    """What a column is for. Which rows are alike follows from it (`alike`)."""

    IDENTITY = "what was measured"
    SETTING = "how it was asked to be measured: numbers under two settings mean two things"
    CONDITION = "on what it was measured: numbers under two conditions are not added up"
    PROVENANCE = "what else was there: rows that differ in it are added up, and it is said"
    CIRCUMSTANCE = "how the trial went; differs from row to row"
    RAW = "raw values and the trial's own log"
    RESULT = "what was found, and how far to trust it"


class Column(NamedTuple):
    """One column: its name, type and meaning, and the part that it plays."""

    name: str
    type: pa.DataType
    meaning: str
    role: Role = Role.RESULT


def in_role(role: Role, columns: Iterable[tuple[str, pa.DataType, str]]) -> list[Column]:
    """Columns that all play that part."""
    return [Column(*column, role) for column in columns]
