"""README.md: the data card, computed from the rows, with the front matter of Hugging Face."""

import re
from collections.abc import Iterable, Mapping
from string import Template
from typing import Any

import pandas as pd
import pyarrow as pa
import yaml

from opcost.publishing.about import ASSETS, LICENSES, About
from opcost.rows.flags import meaning
from opcost.target import SETTINGS

_SETTINGS = ("cache_state", "operation", *(name for name, each in SETTINGS.items() if each.column))
_VERSIONS = {"PyTorch": "torch_version", "CUDA": "cuda_version", "driver": "driver_version"}
COLUMNS = (
    *("target", "tuple_id", "operator", "status", "error", "time_s", "energy_j", "flags", "meter"),
    *("device_name", "device_uuid_hash", "machine_id_hash", "measured_at", *_VERSIONS.values()),
    *("opcost_version", "protocol_version", *_SETTINGS),
)
"""The columns that a publication is described from."""

_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M")
_OF_ENERGY = re.compile(r'- `energy_j`.*?\n(?=- )|, "?energy_j"?', re.DOTALL)
_OF_SENSORS = re.compile(r"- `sensors/`.*\n")
"""Parts of the card."""


def card(about: About, has_sensors: bool) -> str:
    """The text of README.md."""
    rows = about.rows
    failed, flags = rows[rows["status"] != "ok"], rows["flags"].explode().dropna()
    settings = [name for name in _SETTINGS if rows[name].notna().any()]
    text = (ASSETS / "card.md").read_text(encoding="utf-8")
    text = text if "energy" in about.keywords else _OF_ENERGY.sub("", text)
    return Template(text if has_sensors else _OF_SENSORS.sub("", text)).substitute(
        about._asdict(),
        front=as_yaml(_front(about)),
        targets=_table(_target(name, each) for name, each in rows.groupby("target", sort=False)),
        versions=_values(rows, "opcost_version"),
        protocols=_values(rows, "protocol_version"),
        meters=_values(rows, "meter"),
        settings="; ".join(f"`{name}`: {_values(rows, name)}" for name in settings),
        operators=_table(
            {"operator": name, "rows": number}
            for name, number in rows["operator"].value_counts().items()
        ),
        failures=_table(
            {"status": status, "error": error, "rows": len(each)}
            for (status, error), each in failed.groupby(["status", "error"], dropna=False)
        ),
        flags=_table(
            {"flag": name, "rows": number, "meaning": meaning(str(name))}
            for name, number in flags.value_counts().items()
        ),
        file=about.databases[0].file,
    )


def as_yaml(document: Mapping[str, Any]) -> str:
    """The document, with its innermost lists and objects in a line each."""
    return yaml.safe_dump(
        document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )


def _front(about: About) -> dict[str, Any]:
    databases, digits = about.databases, len(str(len(about.rows)))
    return {
        "license": LICENSES[about.license],
        "pretty_name": about.title,
        "tags": about.keywords,
        "size_categories": [_SIZES[min(max(digits - 3, 0), len(_SIZES) - 1)]],
        "configs": [
            {
                "config_name": each.name,
                "data_files": each.file,
                "default": each is databases[0],
                "columns": [column.name for column in each.columns],
            }
            for each in databases
        ],
        "dataset_info": [
            {"config_name": each.name, "features": [*map(_feature, each.columns)]}
            for each in databases
        ],
    }


def _feature(column: pa.Field) -> dict[str, str]:
    is_list = pa.types.is_list(column.type)
    name = str(column.type.value_type if is_list else column.type)
    return {"name": column.name, "list" if is_list else "dtype": name.replace("double", "float64")}


def _target(name: object, rows: pd.DataFrame) -> dict[str, object]:
    begun = rows["measured_at"].min()
    return {
        "target": name,
        "device": _values(rows, "device_name"),
        **{title: _values(rows, column) for title, column in _VERSIONS.items()},
        "rows": len(rows),
        "with time": rows["time_s"].count(),
        "with energy": rows["energy_j"].count(),
        "first measured": "unknown" if pd.isna(begun) else f"{begun:%Y-%m-%d}",
    }


def _values(rows: pd.DataFrame, column: str) -> str:
    """The known values of a column, as text."""
    known = sorted(rows[column].dropna().unique())
    texts = (f"{each:g}" if isinstance(each, float) else str(each) for each in known)
    return ", ".join(texts) or "none"


def _table(cells: Iterable[Mapping[str, object]]) -> str:
    """A table in Markdown, title -> cell in each row; `None.` without rows."""
    found = list(cells)
    if not found:
        return "None."
    lines: list[list[object]] = [[*found[0]], ["---"] * len(found[0])]
    lines += [[*row.values()] for row in found]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: object) -> str:
    return " ".join(str(value).replace("|", "\\|").split())
