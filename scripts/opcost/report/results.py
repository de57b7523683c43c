"""The input of the report: the final files of a study."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from opcost.costs.answers import costs_of_models
from opcost.databases.database import number_of_rows, read_database, stream_database
from opcost.groups import grouped
from opcost.rows import records, schemas
from opcost.rows.flags import ABOVE_ROOF
from opcost.rows.quantities import ENERGY, TIME
from opcost.text import MOST_NOISE
from opcost.tuples.operator_tuple import OperatorTuple, short_name

Row = Mapping[str, Any]

NOTHING = "\N{EN DASH}"
"""Stands where there is no value."""

_TABLES = {
    "shares": schemas.SHARES,
    "modules": schemas.MODULES,
    "models": schemas.EXTRACTION,
    "in_context": schemas.IN_CONTEXT,
    "launches": schemas.LAUNCHES,
    "requests": schemas.REQUESTS,
    "sweeps": schemas.SWEEPS,
}
FILES = ("database", "answers", *_TABLES)
"""What a report is made of: the names of files in the folder of results."""


_KEYS = ("target", "conditions_id", "time_s")
_KEY_BYTES = 200
_MOST_ROWS = 20_000  # more than a browser shows in seconds


def binary(size: int) -> str:
    """Bytes as people read them: 1.5 MiB."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size} B"


@dataclass(frozen=True)
class Results:
    """The rows of a study's final files; or of a database alone, whose name is `source`, without
    the `left_out` ones that are one too many for a page.
    """

    database: pa.Table
    comparison: Sequence[Row]
    shares: Sequence[Row]
    modules: Sequence[Row]
    models: Sequence[Row]
    in_context: Sequence[Row] = ()
    launches: Sequence[Row] = ()
    requests: Sequence[Row] = ()
    sweeps: Sequence[Row] = ()
    source: str | None = None
    left_out: int = 0

    @classmethod
    def read(cls, files: Mapping[str, Path]) -> "Results":
        """Read the files, each by its name in `FILES`.

        Raises OpcostError for one that is damaged or of another version.
        """
        tables = {
            name: records.read(files[name], schema).to_pylist() for name, schema in _TABLES.items()
        }
        costs = costs_of_models(files["answers"])
        return cls(read_database(files["database"]), costs, **tables)

    @classmethod
    def of_database(cls, path: Path) -> "Results":
        """The rows of any database, merged or not; all that needs other files of a study is empty.

        Rows of one target under several conditions_ids count as those of several targets. Of more
        than 20,000 rows, it has of each target those that take longest. Raises OpcostError for a
        file that is not a database.
        """
        rows, number = _costliest(path), number_of_rows(path)
        left_out = number - len(rows)
        return cls(_targets_apart(rows), (), (), (), (), source=path.name, left_out=left_out)

    @cached_property
    def targets(self) -> list[str]:
        """Every target that something was measured on."""
        named = [row["target"] for row in self.comparison]
        return list(dict.fromkeys([*named, *self.database["target"].to_pylist()]))

    @cached_property
    def operators(self) -> pd.DataFrame:
        """The database without raw values, and what follows from each row.

        `name`: the operator as people call it; `dtype`: that of the first tensor, to which it
        promotes the others; `weight_bytes`: size of its weights; `flops_per_s`, `bytes_per_s`,
        `flops_per_byte`; `time_half_width`: half of the 95 % interval as a share of the value.
        Null where there is nothing to divide, where FLOPs are impossible, and where time is too
        noisy.
        """
        columns = [name for name in self.database.column_names if name not in schemas.RAW_BLOCKS]
        frame = self.database.select(columns).to_pandas()
        work = frame[["flops", "bytes"]].where(frame[["flops", "bytes"]] > 0)
        impossible = [flags is not None and ABOVE_ROOF in flags for flags in frame["flags"]]
        work.loc[impossible, "flops"] = math.nan
        half_width = (frame[TIME.high] - frame[TIME.low]) / 2 / frame[TIME.value]
        work.loc[half_width > MOST_NOISE] = math.nan
        tuples = [OperatorTuple.from_json(text) for text in frame["canonical_json"]]
        weights = [
            _weight_bytes(each, names)
            for each, names in zip(tuples, frame["parameters"], strict=True)
        ]
        return frame.assign(
            name=frame["operator"].map(short_name),
            dtype=[next((spec.dtype for _, spec in each.tensors), None) for each in tuples],
            weight_bytes=weights,
            flops_per_s=work["flops"] / frame["time_s"],
            bytes_per_s=work["bytes"] / frame["time_s"],
            flops_per_byte=work["flops"] / work["bytes"],
            time_half_width=half_width,
        )

    @cached_property
    def targets_with_energy(self) -> list[str]:
        """Targets on which any energy was measured."""
        known = {row["target"] for row in self.comparison if row[ENERGY.of("end_to_end").value]}
        frame = self.operators
        return [*known.union(frame.loc[frame["energy_j"].notna(), "target"])]

    @cached_property
    def _by_model(self) -> Sequence[Mapping[tuple[str, str], Sequence[Row]]]:
        """Rows of the shares and of the modules, by model and target."""
        return [
            grouped(((row["model"], row["target"]), row) for row in rows)
            for rows in (self.shares, self.modules)
        ]

    def shares_on(self, target: str) -> list[Row]:
        """The rows of the shares of a target."""
        return [row for row in self.shares if row["target"] == target]

    def shares_of(self, compared: Row) -> Sequence[Row]:
        """The rows of the shares of a row of the comparison."""
        return self._by_model[0].get((compared["model"], compared["target"]), ())

    def modules_of(self, compared: Row) -> Sequence[Row]:
        """The rows of the modules of a row of the comparison."""
        return self._by_model[1].get((compared["model"], compared["target"]), ())

    @cached_property
    def highest_flops_per_s(self) -> Mapping[Any, float]:
        """Target and dtype -> the highest FLOP/s of an operator, if one has FLOPs."""
        frame = self.operators[self.operators["status"] == "ok"]
        return frame.groupby(["target", "dtype"])["flops_per_s"].max().dropna().to_dict()

    def measured(self, target: str) -> pd.DataFrame:
        """The operators that have a result on a target."""
        frame = self.operators
        return frame[(frame["target"] == target) & (frame["status"] == "ok")]

    def compared(self, target: str) -> list[Row]:
        """The comparison's rows of a target."""
        return [row for row in self.comparison if row["target"] == target]


def _costliest(path: Path) -> pa.Table:
    """All rows, or as many as a page can show: of each target those that take longest."""
    keys = read_database(path, _KEYS, _KEY_BYTES).to_pandas()
    by = [name for name in _KEYS[:2] if name in keys]
    ranks = keys.groupby(by, dropna=False)["time_s"].rank(
        "first", ascending=False, na_option="bottom"
    )
    most = _MOST_ROWS // max(keys.groupby(by, dropna=False).ngroups, 1)
    chosen = pa.array(ranks <= max(most, 1) if len(keys) > _MOST_ROWS else ranks > 0)
    schema, batches = stream_database(path)
    start, found = 0, []
    for batch in batches:
        found.append(batch.filter(chosen[start : start + len(batch)]))
        start += len(batch)
    return pa.Table.from_batches(found, schema.with_metadata(None))


def _targets_apart(database: pa.Table) -> pa.Table:
    """The rows, with the conditions_id in the name of each target that has several."""
    if "conditions_id" not in database.column_names:
        return database
    pairs = list(
        zip(*(database[key].to_pylist() for key in ("target", "conditions_id")), strict=True)
    )
    conditions = Counter(target for target, _ in {*pairs})
    names = [
        f"{target} ({conditions_id or 'unknown device'})" if conditions[target] > 1 else target
        for target, conditions_id in pairs
    ]
    place = database.column_names.index("target")
    return database.set_column(place, "target", pa.array(names, pa.string()))


def _weight_bytes(operator: OperatorTuple, parameters: Sequence[str] | None) -> int:
    names = () if parameters is None else set(parameters)
    return sum(spec.bytes for name, spec in operator.tensors if name in names)
