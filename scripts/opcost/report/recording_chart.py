"""Power over time of a recording, with its windows and what the program logged."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pyarrow.parquet as pq

from opcost.errors import OpcostError
from opcost.files import replacing
from opcost.power.export import segments
from opcost.power.recorded_windows import rows_by_name
from opcost.rows.quantities import ENERGY
from opcost.text import seconds

_POINTS = 4000
"""More readings of a device are averaged, so that a page of a day opens as one of a minute does."""

_HEIGHT, _WIDTH = 280, 900

_SHORT_S = 10
"""Vega has no sensible ticks below a second for times of day: seconds since the start have."""

_TICKS = 6
_TIME = (
    "utcFormat(datum.value, utchours(datum.value) + utcminutes(datum.value)"
    " + utcseconds(datum.value) + utcmilliseconds(datum.value) == 0 ? '%d %b'"
    " : utcmilliseconds(datum.value) ? '%H:%M:%S.%L' : '%H:%M:%S')"
)
"""A tick's time of day, or date at midnight, however far one zooms in."""


class _InScript(json.JSONEncoder):
    """JSON for a script element, in which no text can end the element (see page.script_json)."""

    def encode(self, o: Any) -> str:
        return super().encode(o).replace("<", "\\u003c")


def write_chart(recording: Path, page: Path) -> None:
    """Write a self-contained page. Raises OpcostError for a file that is no recording."""
    known = segments(recording)
    table = pq.read_table(recording, columns=["segment", "time", "device", "power_w", "counter_j"])
    frame = _thinned(table.to_pandas())
    if frame.empty:
        raise OpcostError(f"{recording} holds no reading of power: there is nothing to draw")
    title = alt.Title(recording.name, anchor="start")
    with replacing(page) as temporary:
        chart(frame, known).properties(title=title).save(
            temporary, format="html", inline=True, json_kwds={"cls": _InScript}
        )


def chart(frame: pd.DataFrame, known: Sequence[dict[str, Any]]) -> alt.VConcatChart:
    """A part for each segment, with a time axis of its own: nothing is known between segments.

    They have one scale of power, so that segments can be compared.
    """
    most_w = 1.05 * frame["power_w"].max()
    watts = alt.Y("power_w:Q", title="power (W)", scale=alt.Scale(domain=[0, most_w]))
    rows, parts = rows_by_name(known), []
    for number, segment in enumerate(known, 1):
        read = frame[frame["segment"] == number]
        drawn = _segment(read, watts, _windows(segment), _metrics(segment), f"of_{number}")
        if drawn:
            own = [row for row in rows if row["segment"] == number]
            heading = _heading(segment, own, f"segment {number}" if len(known) > 1 else None)
            part = alt.vconcat(*drawn).resolve_scale(x="shared")
            parts.append(part.properties(title=alt.Title(heading, anchor="start", fontSize=12)))
    return alt.vconcat(*parts)


def _segment(
    read: pd.DataFrame, watts: alt.Y, windows: pd.DataFrame, metrics: pd.DataFrame, name: str
) -> list[Any]:
    """Power of each device, windows as bars below, and metrics as curves, where there are any."""
    drawn = [each["time"] for each in (read, windows, metrics) if not each.empty]
    if not drawn:
        return []
    moments = pd.concat(drawn)
    start = moments.min()
    ticks = alt.Axis(labelExpr=_TIME, tickCount=_TICKS, labelOverlap=False)
    x = alt.X("time:T", title="time (UTC)", axis=ticks, scale=alt.Scale(type="utc"))
    if (moments.max() - start).total_seconds() < _SHORT_S:
        x = alt.X("time:Q", title=f"seconds since {start:%H:%M:%S.%f} UTC of {start:%Y-%m-%d}")
        read, windows, metrics = (_since(start, each) for each in (read, windows, metrics))
    parts: list[Any] = []
    if not read.empty:
        line = alt.Chart(read).mark_line(strokeWidth=1)
        parts.append(
            line.encode(x, watts, color=alt.Color("device:N", title=None))
            .properties(width=_WIDTH, height=_HEIGHT)
            .add_params(_zoom(f"power_{name}"))
        )
    if not windows.empty:
        tooltip = ["window:N", alt.Tooltip("seconds:Q", format=".3~s"), "energy:N"]
        names = alt.Y("window:N", title=None, sort=None)
        bars = alt.Chart(windows).mark_bar(height=10, opacity=0.7)
        parts.append(
            bars.encode(x, alt.X2("end"), names, tooltip=tooltip)
            .properties(width=_WIDTH)
            .add_params(_zoom(f"windows_{name}"))
        )
    for metric, rows in metrics.groupby("metric") if not metrics.empty else ():
        line = alt.Chart(rows).mark_line(point=True)
        y = alt.Y("value:Q", title=str(metric), scale=alt.Scale(zero=False))
        parts.append(line.encode(x, y).properties(width=_WIDTH, height=_HEIGHT // 3))
    return parts


def _since(start: pd.Timestamp, frame: pd.DataFrame) -> pd.DataFrame:
    """The same with seconds since a moment in place of times."""
    times = [name for name in ("time", "end") if name in frame]
    return frame.assign(**{name: (frame[name] - start).dt.total_seconds() for name in times})


def _zoom(name: str) -> alt.Parameter:
    """Lets the time of a part be moved and scaled; the others follow."""
    return alt.selection_interval(name=name, bind="scales", encodings=["x"])


def _thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """The mean power in at most so many equal parts of each segment's time, for each device."""
    # A meter that is only a counter has the power since its value before.
    each = frame.groupby(["segment", "device"], observed=True)
    counted_w = each["counter_j"].diff() / each["time"].diff().dt.total_seconds()
    frame = frame.assign(power_w=frame["power_w"].fillna(counted_w)).dropna(subset="power_w")
    if frame.empty:
        return frame
    if len(frame) <= _POINTS:
        return frame[["segment", "time", "device", "power_w"]]
    parts = max(_POINTS // frame["segment"].nunique(), 1)
    return pd.concat(_in_parts(rows, parts) for _, rows in frame.groupby("segment"))


def _in_parts(rows: pd.DataFrame, parts: int) -> pd.DataFrame:
    first = rows["time"].min()
    length = ((rows["time"].max() - first) / parts).ceil("us")
    part = first + (rows["time"] - first) // length * length if length else rows["time"]
    means = rows.groupby(["segment", part, "device"], observed=True)["power_w"].mean()
    return means.reset_index()


def _heading(
    segment: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], name: str | None
) -> str:
    """Name and labels of a segment, and its longest window, mostly the program, with energies; that
    of windows of a name is their mean.
    """
    labels = ", ".join(f"{label}={text}" for label, text in segment.get("labels", {}).items())
    longest = max(rows, key=lambda row: row["time_s"] / row["windows"], default=None)
    return "; ".join(text for text in (name, labels, longest and _of_windows(longest)) if text)


def _of_windows(row: Mapping[str, Any]) -> str:
    times = f" ({row['windows']} windows)" if row["windows"] > 1 else ""
    energies = _energies(
        {name: used for name, used in row["devices"].items() if used["energy_j"] is not None}
    )
    return f"{row['window']}{times}: {seconds(row['time_s'])}, {energies or 'no energy'}"


def _windows(segment: Mapping[str, Any]) -> pd.DataFrame:
    rows = [
        {
            "window": event["window"],
            "time": _time(segment, event["start_s"]),
            "end": _time(segment, event["end_s"]),
            "seconds": event["end_s"] - event["start_s"],
            "energy": _energies(event.get("devices", {})),
        }
        for event in segment["events"]
        if "window" in event
    ]
    return pd.DataFrame(rows).sort_values("time") if rows else pd.DataFrame()


def _energies(devices: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {ENERGY.shown(found)}" for name, found in devices.items())


def _metrics(segment: Mapping[str, Any]) -> pd.DataFrame:
    rows = [
        {"metric": name, "value": value, "time": _time(segment, event["time_s"])}
        for event in segment["events"]
        for name, value in event.get("metrics", {}).items()
    ]
    return pd.DataFrame(rows)


def _time(segment: Mapping[str, Any], monotonic_s: float) -> pd.Timestamp:
    return pd.Timestamp(
        segment["unix_s"] - segment["monotonic_s"] + monotonic_s, unit="s", tz="UTC"
    )
