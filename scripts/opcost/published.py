"""Published figures of models: a CSV file that a study names.

Imports no torch: Snakemake reads the study each time it starts.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

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
    if unknown or lacking:
        problem = f"has no column {lacking[0]}" if lacking else f"has a column {shown(unknown[0])}"
        raise OpcostError(
            f"published: {path} {problem}. Allowed: {', '.join(_COLUMNS)}. "
            f"{closest(unknown[0], _COLUMNS) if unknown else ''}".rstrip()
        )
    return tuple(_row(row, f"{path}, line {number}") for number, row in rows)


def _row(row: Mapping[str, str | None], where: str) -> Published:
    texts = {column: text.strip() for column, text in row.items() if isinstance(text, str)}
    if None in row or not all(texts.get(column) for column in _TEXTS):
        raise OpcostError(f"published: {where}: a row has a model, a device and its figures")
    figures = {
        column: _number(text, f"{where}, {column}")
        for column, text in texts.items()
        if text and column not in _TEXTS
    }
    return Published(texts["model"], texts["device"], **figures)


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise OpcostError(f"published: {where}: {shown(text)} is no number above 0")
    return value
