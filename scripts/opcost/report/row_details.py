"""A row's details: its raw values, all other columns, and the charts of raw values.

Raw values are deviations from the row's result in steps of 0.01 %. For a large database they are
evenly subsampled to keep the page small. The database holds all of them.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from opcost.report.colours import PALETTE
from opcost.report.operator_table import significant
from opcost.report.results import binary
from opcost.report.theme import INK, figure, series_scale, si_axis
from opcost.rows import schemas

CHUNK = 250
"""Rows that are unpacked together."""
STEP = 1e-4
"""Raw values are whole multiples of it, relative to the row's result."""
_MAX_VALUES = 3_000_000  # on a page: blocks of iterations, and as many power samples
_MIN_VALUES = 24
_DIGITS = 5
_IN_TABLE = ("target", "operator", "description", "status", "flags")
_AS_JSON = ("conditions_json",)


def chunks(database: pa.Table) -> list[dict[str, Any]]:
    """Of each `CHUNK` rows, in order: `columns` that vary, `blocks` and `power`.

    A row's `blocks` are None, or `count` (of all), `values` (deviations from `time_s` in `STEP`)
    and `disturbed` (positions among the values); its `power`, `count`, `values` (from `power_w`)
    and `gaps_ms` (milliseconds since the value before).
    """
    most = max(_MIN_VALUES, _MAX_VALUES // max(len(database), 1))
    varying = _varying(database)
    return [
        _chunk(database.slice(start, CHUNK), varying, most)
        for start in range(0, len(database), CHUNK)
    ]


def common(database: pa.Table) -> dict[str, dict[str, Any]]:
    """For each target, the columns that are the same in all rows, with that value."""
    varying = {*_varying(database), *_IN_TABLE, *_AS_JSON, *schemas.RAW_BLOCKS}
    names = [name for name in database.column_names if name not in varying]
    found: dict[str, dict[str, Any]] = {}
    targets = database["target"].to_pylist()
    for target in dict.fromkeys(targets):
        first = database.slice(targets.index(target), 1)
        values = {name: _plain(name, first[name])[0] for name in names}
        found[target] = {name: value for name, value in values.items() if value is not None}
    return found


def _varying(database: pa.Table) -> list[str]:
    """Columns that are not the same in all rows of a target."""
    if not database.num_rows:
        return []
    candidates = set(database.column_names) - {*schemas.RAW_BLOCKS, *_IN_TABLE, *_AS_JSON}
    columns = {name: database[name] for name in database.column_names if name in candidates}
    texts = {
        name: pa.array(map(str, column.to_pylist())) if pa.types.is_nested(column.type) else column
        for name, column in columns.items()
    }
    table = pa.table({"target": database["target"], **texts})
    all_values = pc.CountOptions(mode="all")
    counts = table.group_by("target").aggregate(
        [(name, "count_distinct", all_values) for name in texts]
    )
    return [name for name in texts if pc.max(counts[f"{name}_count_distinct"]).as_py() > 1]


def _chunk(rows: pa.Table, varying: Sequence[str], most: int) -> dict[str, Any]:
    raw = {name: rows[name].to_pylist() for name in (*schemas.RAW_BLOCKS, "time_s", "power_w")}
    blocks = zip(raw["block_time_s"], raw["block_undisturbed"], raw["time_s"], strict=True)
    samples = zip(raw["power_sample_w"], raw["power_sample_time_s"], raw["power_w"], strict=True)
    return {
        "columns": {name: _plain(name, rows[name]) for name in varying},
        "blocks": [_blocks(*row, most) for row in blocks],
        "power": [_power(*row, most) for row in samples],
    }


def _blocks(
    times_s: list[float] | None, undisturbed: list[bool] | None, time_s: float | None, most: int
) -> dict[str, Any] | None:
    if not times_s or not time_s:
        return None
    kept = _kept(len(times_s), most)
    counted = np.ones(len(times_s), bool) if undisturbed is None else np.array(undisturbed)
    return {
        "count": len(times_s),
        "values": _deviations(np.array(times_s)[kept], time_s),
        "disturbed": np.flatnonzero(~counted[kept]).tolist(),
    }


def _power(
    samples_w: list[float] | None, times_s: list[float] | None, power_w: float | None, most: int
) -> dict[str, Any] | None:
    if not samples_w or not times_s or not power_w:
        return None
    kept = _kept(len(samples_w), most)
    milliseconds = np.rint(np.array(times_s)[kept] * 1e3).astype(int)
    return {
        "count": len(samples_w),
        "values": _deviations(np.array(samples_w)[kept], power_w),
        "gaps_ms": np.diff(milliseconds, prepend=0).tolist(),
    }


def _kept(count: int, most: int) -> np.ndarray:
    """Positions of the values that are kept: all, or `most` of them at even distances."""
    return np.rint(np.linspace(0, count - 1, min(count, most))).astype(int)


def _deviations(values: np.ndarray, result: float) -> list[int]:
    return np.rint((values / result - 1) / STEP).astype(int).tolist()


def _plain(name: str, column: pa.ChunkedArray) -> list[Any]:
    """A column's values as JSON data that people can read."""
    values = column.to_pylist()
    if name.endswith("bytes"):
        return [value if value is None else binary(value) for value in values]
    return [_shown(value) for value in values]


def _shown(value: Any) -> Any:
    if isinstance(value, float):
        return significant(value, _DIGITS)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, list):
        return ", ".join(map(_item, value)) or None
    return value


def _item(item: Any) -> str:
    return ": ".join(map(str, item)) if isinstance(item, tuple) else str(_shown(item))


def raw_charts() -> dict[str, dict[str, Any]]:
    """The charts of blocks of iterations and of power; the page's script inserts a row's values.

    Of data named `values` (`block`, `time_s`, `kind`; or `after_s`, `power_w`) and `result`
    (`value`, `low`, `high`), around which they are drawn.
    """
    base = alt.Chart(alt.NamedData("values"))
    kinds, legend = ["counted", "disturbed"], alt.Legend(title=None)
    colour = series_scale(kinds, [PALETTE[0], PALETTE[5]])
    blocks = base.mark_point(filled=True, size=28, opacity=0.85).encode(
        x=alt.X("block:Q", axis=alt.Axis(title="block of iterations", tickMinStep=1, grid=False)),
        y=_result_axis("time_s", "time of an iteration", "s"),
        color=alt.Color("kind:N", scale=colour, legend=legend),
        shape=alt.Shape("kind:N", scale=series_scale(kinds, ["circle", "cross"]), legend=legend),
        tooltip=["block:Q", alt.Tooltip("time_s:Q", format=".5~s"), "kind:N"],
    )
    power = base.mark_point(filled=True, size=28, opacity=0.85, color=PALETTE[2]).encode(
        x=alt.X("after_s:Q", axis=si_axis("since the window began", "s", grid=False)),
        y=_result_axis("power_w", "power", "W"),
        tooltip=[alt.Tooltip("after_s:Q", format=".3f"), alt.Tooltip("power_w:Q", format=".5~s")],
    )
    labels = {"blocks": "Time of each block of iterations", "power": "Power at each refresh"}
    return {
        name: figure(alt.layer(*_result(), points), 150, "", labels[name], {}).spec
        for name, points in (("blocks", blocks), ("power", power))
    }


def _result() -> list[alt.Chart]:
    base = alt.Chart(alt.NamedData("result"))
    band = base.mark_rect(opacity=0.15, color=INK).encode(y="low:Q", y2="high:Q")
    return [band, base.mark_rule(color=INK, strokeDash=[5, 3]).encode(y="value:Q")]


def _result_axis(field: str, title: str, unit: str) -> alt.Y:
    axis = si_axis(title, unit, tickCount=4)
    return alt.Y(f"{field}:Q", axis=axis, scale=alt.Scale(zero=False))
