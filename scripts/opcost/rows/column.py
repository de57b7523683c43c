"""A column of a record, and its role."""

import re
from enum import Enum
from textwrap import dedent
from typing import NamedTuple

import pyarrow as pa

from opcost.rows.quantities import quantity_of

_INTERVAL = "interval"
_TYPES = {
    "time": pa.timestamp("us", tz="UTC"),
    "counts": pa.map_(pa.string(), pa.int64()),
    "reasons": pa.map_(pa.string(), pa.string()),
    **{name: pa.type_for_alias(name) for name in ("string", "int64", "float64", "bool")},
}


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


def entries(text: str) -> list[str]:
    """The entries of a text, each on one line; further lines of an entry are indented."""
    return [re.sub(r"\s+", " ", each) for each in re.split(r"\n(?! )", dedent(text).strip())]


def columns(text: str, role: Role = Role.RESULT) -> list[Column]:
    """The columns of a text: `name type: meaning` each, whose further lines are indented. Behind
    the type may stand how runs are joined: `ended_at time, last: end of the last trial`.

    A type is a name in `_TYPES`, with `[]` a list of it. An `interval` is a number, followed by the
    columns of the limits of its 95 % interval. Raises KeyError for another type.
    """
    found: list[Column] = []
    for entry in entries(text):
        about, meaning = entry.split(": ", 1)
        name, kind, *joining = about.replace(",", "").split()
        base = kind.removesuffix("[]")
        arrow = _TYPES["float64" if base == _INTERVAL else base]
        arrow = arrow if base == kind else pa.list_(arrow)
        found.append(
            Column(name, arrow, meaning, role, *(Joining[each.upper()] for each in joining))
        )
        if base == _INTERVAL:
            _, low, high = quantity_of(name).names
            limit = f"limit of the 95 % interval of `{name}`"
            found.append(Column(low, arrow, f"lower {limit}", role))
            found.append(Column(high, arrow, f"upper {limit}", role))
    return found
