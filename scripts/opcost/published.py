"""Published figures of models: a CSV file that a study names.

Imports no torch: Snakemake reads the study each time it starts.
"""

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from opcost.errors import OpcostError, closest
from opcost.files import lines_of
from opcost.values import shown


@dataclass(frozen=True)
class Published:
    """Published figures of a model on a device, in seconds and joules: of an iteration or a sample,
    end to end or estimated from operators; None where there is none.
    """

    model: str
    device: str
    time_s: float | None = None
    energy_j: float | None = None
    sample_time_s: float | None = None
    sample_energy_j: float | None = None
    sum_time_s: float | None = None
    sum_energy_j: float | None = None


_TEXTS = ("model", "device")
_NUMBER = re.compile(r"\+?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
"""Numbers as in CSV files; Python's float also accepts 1_000."""
_COLUMNS = tuple(field.name for field in fields(Published))


def read_published(path: Path) -> tuple[Published, ...]:
    """The rows of a CSV file with the columns `model`, `device` and any of the figures.

    Raises OpcostError for a file that is missing or of another form.
    """
    try:
        # Spreadsheets write a byte order mark.
        with lines_of(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            columns = list(reader.fieldnames or ())
            rows = [(reader.line_num, row) for row in reader]
    except (OpcostError, OSError, UnicodeDecodeError, csv.Error) as error:
        raise OpcostError(f"published: {path} cannot be read: {error}") from error
    unknown = [column for column in columns if column not in _COLUMNS]
    lacking = [column for column in _TEXTS if column not in columns]
    if twice := [column for column in _COLUMNS if columns.count(column) > 1]:
        raise OpcostError(f"published: {path} has the column {twice[0]} twice: remove one of them")
    if unknown or lacking:
        problem = f"has no column {lacking[0]}" if lacking else f"has a column {shown(unknown[0])}"
        raise OpcostError(
            f"published: {path} {problem}. Allowed: {', '.join(_COLUMNS)}. "
            f"{closest(unknown[0], _COLUMNS) if unknown else ''}".rstrip()
        )
    return tuple(_row(row, f"{path}, line {number}") for number, row in rows)


def _row(row: Mapping[str | None, str | None], where: str) -> Published:
    values: dict[str, Any] = {column: (row[column] or "").strip() for column in _TEXTS}
    if None in row or not all(values.values()):
        raise OpcostError(f"published: {where}: a row has a model, a device and its figures")
    for column, value in values.items():
        if not value.isprintable():
            raise OpcostError(f"published: {where}, {column}: {shown(value)} is not printable text")
    for column in _COLUMNS:
        if column not in _TEXTS and (text := (row.get(column) or "").strip()):
            values[column] = _number(text, f"{where}, {column}")
    return Published(**values)


def _number(text: str, where: str) -> float:
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not (math.isfinite(value) and value > 0):
        raise OpcostError(f"published: {where}: {shown(text)} is no number above 0")
    return value
