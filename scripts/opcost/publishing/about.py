"""What is published: rows, their title, authors and licence."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from importlib.resources import files
from typing import NamedTuple

import pandas as pd
import pyarrow as pa

from opcost.errors import OpcostError
from opcost.text import counted
from opcost.values import shown

ASSETS = files("opcost.publishing") / "assets"
KEYWORDS = ["opcost", "PyTorch", "operators", "benchmark", "latency", "energy"]
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


@dataclass(frozen=True)
class About:
    """A publication. `license` is an SPDX id; authors are as in CITATION.cff."""

    named: str
    authors: Sequence[dict[str, str]]
    license: str
    date: date
    databases: Sequence[Rows]

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Those of all databases."""
        return pd.concat([each.frame for each in self.databases], ignore_index=True)

    @cached_property
    def title(self) -> str:
        """As named, or else what was measured on which devices."""
        return self.named or f"{self._quantities} of PyTorch operators on {self._devices}"

    @property
    def summary(self) -> str:
        """What the rows are of, in a sentence."""
        calls, operators = (self.rows[name].nunique() for name in ("tuple_id", "operator"))
        return (
            f"{self._quantities} of {counted(calls, 'call')} of "
            f"{counted(operators, 'PyTorch operator')}, distinct in sizes and types, on "
            f"{self._devices}: {counted(len(self.rows), 'row')} with 95 % intervals and raw values."
        )

    @property
    def license_url(self) -> str:
        """The address of the licence's text."""
        return f"https://spdx.org/licenses/{self.license}.html"

    @property
    def version(self) -> str:
        """The day, as a version."""
        return f"{self.date.year}.{self.date.month}.{self.date.day}"

    @property
    def citation(self) -> str:
        """As in a list of references."""
        authors = "; ".join(
            f"{each['family-names']}, {each['given-names']}" for each in self.authors
        )
        return f"{authors} ({self.date.year}): {self.title}. Data set, {self.license}."

    @property
    def _quantities(self) -> str:
        return "Time and energy" if self.rows["energy_j"].notna().any() else "Time"

    @property
    def _devices(self) -> str:
        return ", ".join(sorted(self.rows["device_name"].dropna().unique())) or "an unknown device"
