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


class Column(NamedTuple):
    """One column: its name, type, meaning and role."""

    name: str
    type: pa.DataType
    meaning: str
    role: Role = Role.RESULT


def in_role(role: Role, columns: Iterable[tuple[str, pa.DataType, str]]) -> list[Column]:
    """Columns that share a role."""
    return [Column(*column, role) for column in columns]
