"""From files of others to a database whose rows say that they are imported, and from where.

An imported row holds what the record says and nothing else: no interval, no protocol version, no
driver, no conditions but its source. It is therefore never added up with measured rows.
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
"""A layout `matches` a file or not, and can `read` its records."""


@dataclass
class Import:
    """What an import did: rows by target, and records left out by reason, with the first's place.

    As text, the lines that a person reads.
    """

    rows: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    places: dict[str, str] = field(default_factory=dict)

    def skip(self, place: str, reason: str) -> None:
        """Count a record that does not become a row."""
        self.skipped[reason] += 1
        self.places.setdefault(reason, place)

    def __str__(self) -> str:
        lines = [f"{self.rows.total() + self.skipped.total():>8} records"]
        lines += [f"{count:>8} rows of target {name}" for name, count in sorted(self.rows.items())]
        if self.skipped:
            lines.append(f"{self.skipped.total():>8} records left out:")
        for reason, count in self.skipped.most_common():
            lines.append(f"{count:>8} {reason} ({self.places[reason]})")
        return "\n".join(lines)


def import_records(
    paths: Sequence[Path],
    output: Path,
    source: str,
    target: str | None = None,
    device_name: str | None = None,
) -> Import:
    """Write the records of files of others as a database.

    `source` says where they were published. `target` names the rows' target; by default, their
    layout and their device or file do. `device_name` is the device's model where the files do not
    say it. Raises OpcostError for a file that does not exist, or whose layout is not known.
    """
    check_output(output, paths)
    done = Import()
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for layout, record in _records(paths):
        name = target or f"{layout}_{record.device}".replace(" ", "_")
        try:
            row = {"device_name": device_name, **_row(record), **_origin(layout, source, name)}
        except Undetermined as reason:
            done.skip(record.place, str(reason))
            continue
        if (key := (name, row["tuple_id"])) in rows:
            done.skip(record.place, "its tuple has an earlier record on its target")
            continue
        rows[key] = row
        done.rows[name] += 1
    table = pa.Table.from_pylist(list(rows.values()), schema=schemas.DATABASE)
    records.write_batches(output, schemas.DATABASE, table.to_batches())
    return done


def _records(paths: Sequence[Path]) -> Iterator[tuple[str, Published]]:
    """The records of all files, each with its layout, which is found for all before any is read."""
    layouts = [_layout_of(path) for path in paths]
    for path, layout in zip(paths, layouts, strict=True):
        yield from ((layout, record) for record in LAYOUTS[layout].read(path))


def _layout_of(path: Path) -> str:
    if not path.is_file():
        raise OpcostError(f"there is no file {path}")
    for name, layout in LAYOUTS.items():
        if layout.matches(path):
            return name
    raise OpcostError(
        f"{path} has no layout that opcost reads ({', '.join(LAYOUTS)}): "
        "docs/how_to/import.md shows them"
    )


def _row(record: Published) -> dict[str, Any]:
    """What the record says, as columns. Raises Undetermined."""
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
    """The columns that keep imported rows apart from measured ones, and sources from each other."""
    conditions = {"imported": {"layout": layout, "source": source}}
    return {
        "target": target,
        "conditions_json": json.dumps(conditions, sort_keys=True),
        "flags": [IMPORTED],
    }
