"""A column of a record, and its role."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import pyarrow as pa


class Role(Enum):
    """What a column is for. It determines which rows may be combined (`comparability`)."""

    IDENTITY = "what was measured"
    SETTING = "the requested procedure: results under different settings are not comparable"
    CONDITION = "device and software: results under different conditions are not added up"
    PROVENANCE = "other software: rows that differ in it are added up with a note"
    CIRCUMSTANCE = "state during the trial; varies from row to row"
    RAW = "raw values and the trial's log"
    RESULT = "the result and its quality"


class Joining(Enum):
    """What a row has that joins several runs."""

    FIRST = "of the first run"
    LAST = "of the last one"
    TOTAL = "the total of those known"
    ALL = "whether it holds for all"
    MOST = "what at least half of them list"
    IN_ORDER = "the values of each, one run after another; null if one lacks them"


class Column(NamedTuple):
    """One column: its name, type, meaning and role, and how runs are joined in it."""

    name: str
    type: pa.DataType
    meaning: str
    role: Role = Role.RESULT
    joining: Joining = Joining.FIRST


_Described = tuple[str, pa.DataType, str] | tuple[str, pa.DataType, str, Joining]


def in_role(role: Role, columns: Iterable[_Described]) -> list[Column]:
    """Columns that share a role; each may state how runs are joined in it."""
    return [Column(*column[:3], role, *column[3:]) for column in columns]
