"""Convert published records to a database of imported rows.

An imported row contains only values from its record: no interval, protocol version or driver, and
no condition except its source. It is therefore never added up with measured rows.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

from opcost.errors import OpcostError
from opcost.files import check_output
from opcost.imports import neusight, operator_profiling
from opcost.imports.published import Published, Undetermined
from opcost.rows import records, schemas
from opcost.rows.flags import IMPORTED

LAYOUTS: dict[str, ModuleType] = {
    "operator-profiling": operator_profiling,
    "neusight": neusight,
}
"""Name -> module; `matches` detects the layout of a file, `read` yields its records."""


@dataclass
class Import:
    """The outcome of an import: rows by target, and skipped records by reason, with file and line
    of the first.

    As text, the summary to print.
    """

    rows: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    first_skipped: dict[str, str] = field(default_factory=dict)

    def skip(self, line: str, reason: str) -> None:
        """Count a skipped record, at `line` (file:line)."""
        self.skipped[reason] += 1
        self.first_skipped.setdefault(reason, line)

    def __str__(self) -> str:
        lines = [f"{self.rows.total() + self.skipped.total():>8} records"]
        lines += [f"{count:>8} rows of target {name}" for name, count in sorted(self.rows.items())]
        if self.skipped:
            lines.append(f"{self.skipped.total():>8} records skipped:")
        for reason, count in self.skipped.most_common():
            lines.append(f"{count:>8} {reason} ({self.first_skipped[reason]})")
        return "\n".join(lines)


def import_records(
    paths: Sequence[Path],
    output: Path,
    source: str,
    target: str | None = None,
    device_name: str | None = None,
) -> Import:
    """Write published records as a database.

    `source` is where they were published. `target` is the rows' target; by default it is composed
    of layout and device or file. `device_name` is the product name of the device if the files do
    not state it. Raises OpcostError for a file that does not exist or has an unknown layout.
    """
    check_output(output, paths)
    done = Import()
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for layout, record in _records(paths):
        name = target or f"{layout}_{record.device}".replace(" ", "_")
        try:
            row = {"device_name": device_name, **_row(record), **_origin(layout, source, name)}
        except Undetermined as reason:
            done.skip(record.line, str(reason))
            continue
        if (key := (name, row["tuple_id"])) in rows:
            done.skip(record.line, "its tuple has an earlier record on its target")
            continue
        rows[key] = row
        done.rows[name] += 1
    table = pa.Table.from_pylist(list(rows.values()), schema=schemas.DATABASE)
    records.write_batches(output, schemas.DATABASE, table.to_batches())
    return done


def _records(paths: Sequence[Path]) -> Iterator[tuple[str, Published]]:
    """The records of all files with their layouts; detects all layouts before reading any file."""
    layouts = [_layout_of(path) for path in paths]
    for path, layout in zip(paths, layouts, strict=True):
        yield from ((layout, record) for record in LAYOUTS[layout].read(path))


def _layout_of(path: Path) -> str:
    for name, layout in LAYOUTS.items():
        if layout.matches(path):
            return name
    raise OpcostError(
        f"{path} has an unknown layout; opcost reads {', '.join(LAYOUTS)}: "
        "see docs/how_to/import.md"
    )


def _row(record: Published) -> dict[str, Any]:
    """The columns of a record. Raises Undetermined."""
    columns = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.columns.items()
    }
    if columns["time_s"] is None or columns["time_s"] <= 0:
        raise Undetermined("its time is not a positive number")
    if columns.get("energy_j") is None:
        columns.setdefault("energy_reason", "not published")
    found = record.find()
    parameters = list(found.parameters)
    return {**records.operator_columns(found), "parameters": parameters, "status": "ok", **columns}


def _origin(layout: str, source: str, target: str) -> dict[str, Any]:
    """The columns that separate imported rows from measured ones, and sources from each other."""
    conditions = {"imported": {"layout": layout, "source": source}}
    return {
        "target": target,
        "conditions_json": json.dumps(conditions, sort_keys=True),
        "flags": [IMPORTED],
    }
