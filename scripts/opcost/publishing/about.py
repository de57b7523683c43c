"""What is published: rows, their title, authors and licence."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from importlib.resources import files
from typing import NamedTuple

import pandas as pd
import pyarrow as pa

from opcost.errors import OpcostError
from opcost.text import counted
from opcost.values import shown

ASSETS = files("opcost.publishing") / "assets"
_KEYWORDS = ["opcost", "PyTorch", "operators", "benchmark", "latency"]
LICENSES = {
    "CC-BY-4.0": "cc-by-4.0",
    "CC0-1.0": "cc0-1.0",
    "CC-BY-SA-4.0": "cc-by-sa-4.0",
    "CC-BY-NC-4.0": "cc-by-nc-4.0",
    "CDLA-Permissive-2.0": "cdla-permissive-2.0",
    "ODC-By-1.0": "odc-by",
    "ODbL-1.0": "odbl",
    "PDDL-1.0": "pddl",
}
"""Licences for data: SPDX id -> id at Hugging Face."""

Authors = Sequence[Mapping[str, str]]
_AUTHOR = re.compile(
    r"([^,\d]+), *([^,\d]*[^,\d\s])(?: +(?:https://orcid\.org/)?((?:\d{4}-){3}\d{3}[\dX]))?"
)


def parse_author(text: str) -> dict[str, str]:
    """An author as in CITATION.cff, from `Family, Given` and possibly an ORCID iD.

    Raises OpcostError for other texts.
    """
    found = _AUTHOR.fullmatch(text.strip())
    if found is None:
        raise OpcostError(
            f"--author {shown(text)}: write a family name, a comma and a given name, then an ORCID "
            "iD if there is one: 'Lovelace, Ada 0000-0002-1825-0097'"
        )
    names = {"family-names": found[1], "given-names": found[2]}
    return names | ({"orcid": f"https://orcid.org/{found[3]}"} if found[3] else {})


class Rows(NamedTuple):
    """A published database: its name, its file in the folder, and its rows without raw values."""

    name: str
    file: str
    schema: pa.Schema
    frame: pd.DataFrame

    @property
    def columns(self) -> list[pa.Field]:
        """Those but maps, for which neither Hugging Face nor Croissant has a type."""
        return [column for column in self.schema if not pa.types.is_map(column.type)]


class About(NamedTuple):
    """A publication: `license` is an SPDX id, authors are as in CITATION.cff, `rows` those of all
    databases, and `version` is the day.
    """

    title: str
    summary: str
    citation: str
    authors: Authors
    license: str
    license_url: str
    date: date
    version: str
    keywords: Sequence[str]
    databases: Sequence[Rows]
    rows: pd.DataFrame


def about(
    title: str, authors: Authors, origin: Sequence[str], license: str, databases: Sequence[Rows]
) -> About:
    """A publication of today; without a title, it has one of devices and what was measured."""
    rows = pd.concat([each.frame for each in databases], ignore_index=True)
    today = datetime.now(UTC).date()
    keywords = [*_KEYWORDS, *["energy"] * bool(rows["energy_j"].notna().any())]
    measured = "Time and energy" if "energy" in keywords else "Time"
    devices = ", ".join(sorted(rows["device_name"].dropna().unique())) or "an unknown device"
    title = title or f"{measured} of PyTorch operators on {devices}"
    calls, operators = rows["tuple_id"].nunique(), rows["operator"].nunique()
    names = "; ".join(f"{each['family-names']}, {each['given-names']}" for each in authors)
    citation = f"{names} ({today.year}): {title}. Data set, {license}."
    if origin:
        citation += f" With data of {'; '.join(origin)}; the authors are those of this publication."
    return About(
        title,
        f"{measured} of {counted(calls, 'call')} of {counted(operators, 'PyTorch operator')}, "
        f"distinct in sizes and types, on {devices}: {counted(len(rows), 'row')} with 95 % "
        "intervals and raw values.",
        citation,
        authors,
        license,
        f"https://spdx.org/licenses/{license}.html",
        today,
        f"{today.year}.{today.month}.{today.day}",
        keywords,
        databases,
        rows,
    )
