"""Power over time of a recording, with its windows and what the program logged."""

from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pyarrow.parquet as pq

from opcost.errors import OpcostError
from opcost.files import replacing
from opcost.power.export import segments
from opcost.rows.quantities import ENERGY

_POINTS = 4000
"""More readings of a device are averaged, so that a page of a day opens as one of a minute does."""

_HEIGHT, _WIDTH = 280, 900
_SHORT_S = 30


def write_chart(recording: Path, page: Path) -> None:
    """Write a self-contained page. Raises OpcostError for a file that is no recording."""
    known = segments(recording)
    table = pq.read_table(recording, columns=["segment", "time", "device", "power_w", "counter_j"])
    frame = _thinned(table.to_pandas())
    if frame.empty:
        raise OpcostError(f"{recording} holds no reading of power: there is nothing to draw")
    with replacing(page) as temporary:
        chart(frame, _windows(known), _metrics(known)).save(temporary, format="html", inline=True)


def chart(frame: pd.DataFrame, windows: pd.DataFrame, metrics: pd.DataFrame) -> alt.VConcatChart:
    """Power of each device, windows as bars below, and metrics as curves."""
    seconds = (frame["time"].max() - frame["time"].min()).total_seconds()
    ticks = alt.Axis(format="%H:%M:%S" if seconds > _SHORT_S else "%M:%S.%L", tickCount=8)
    x = alt.X("time:T", title="time (UTC)", axis=ticks)
    watts = alt.Y(
        "power_w:Q", title="power (W)", scale=alt.Scale(domain=[0, 1.05 * frame["power_w"].max()])
    )
    power = (
        alt.Chart(frame)
        .mark_line(strokeWidth=1)
        .encode(x, watts, color=alt.Color("device:N", title=None))
        .properties(width=_WIDTH, height=_HEIGHT)
        .add_params(_zoom("power"))
    )
    parts: list[Any] = [power]
    if not windows.empty:
        tooltip = ["window:N", alt.Tooltip("seconds:Q", format=".3~s"), "energy:N"]
        names = alt.Y("window:N", title=None, sort=None)
        bars = alt.Chart(windows).mark_bar(height=10, opacity=0.7)
        parts.append(
            bars.encode(x, alt.X2("end:T"), names, tooltip=tooltip)
            .properties(width=_WIDTH)
            .add_params(_zoom("windows"))
        )
    for name, rows in metrics.groupby("metric") if not metrics.empty else ():
        line = alt.Chart(rows).mark_line(point=True)
        y = alt.Y("value:Q", title=str(name), scale=alt.Scale(zero=False))
        parts.append(line.encode(x, y).properties(width=_WIDTH, height=_HEIGHT // 3))
    return alt.vconcat(*parts).resolve_scale(x="shared")


def _zoom(name: str) -> alt.Parameter:
    """Lets the time of a part be moved and scaled; the others follow."""
    return alt.selection_interval(name=name, bind="scales", encodings=["x"])


def _thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """The mean power in at most so many equal parts of the time, for each device."""
    # A meter that is only a counter has the power since its value before.
    each = frame.groupby(["segment", "device"], observed=True)
    counted_w = each["counter_j"].diff() / each["time"].diff().dt.total_seconds()
    frame = frame.assign(power_w=frame["power_w"].fillna(counted_w)).dropna(subset="power_w")
    if frame.empty:
        return frame
    span = (frame["time"].max() - frame["time"].min()) / _POINTS
    if len(frame) <= _POINTS or not span.total_seconds():
        return frame[["time", "device", "power_w"]]
    part = frame["time"].dt.floor(span.ceil("us"))
    means = frame.groupby([part, "device"], observed=True)["power_w"].mean()
    return means.reset_index()


def _windows(known: list[dict[str, Any]]) -> pd.DataFrame:
    rows = [
        {
            "window": event["window"],
            "time": _time(segment, event["start_s"]),
            "end": _time(segment, event["end_s"]),
            "seconds": event["end_s"] - event["start_s"],
            "energy": _energies(event.get("devices", {})),
        }
        for segment in known
        for event in segment["events"]
        if "window" in event
    ]
    return pd.DataFrame(rows).sort_values("time") if rows else pd.DataFrame()


def _energies(devices: dict[str, Any]) -> str:
    return ", ".join(f"{name} {ENERGY.shown(found)}" for name, found in devices.items())


def _metrics(known: list[dict[str, Any]]) -> pd.DataFrame:
    rows = [
        {"metric": name, "value": value, "time": _time(segment, event["time_s"])}
        for segment in known
        for event in segment["events"]
        for name, value in event.get("metrics", {}).items()
    ]
    return pd.DataFrame(rows)


def _time(segment: dict[str, Any], monotonic_s: float) -> pd.Timestamp:
    return pd.Timestamp(
        segment["unix_s"] - segment["monotonic_s"] + monotonic_s, unit="s", tz="UTC"
    )
