"""The charts in a row's details; the page's script inserts the row's values."""

from typing import Any

import altair as alt

from opcost.report.colours import PALETTE
from opcost.report.theme import INK, figure, si_axis


def batches() -> dict[str, Any]:
    """Time of each batch, disturbed ones apart, around the result and its 95 % interval.

    Of data named `values` (`batch`, `time_s`, `kind`) and `result` (`value`, `low`, `high`).
    """
    kinds = ["counted", "disturbed"]
    legend = alt.Legend(title=None)
    points = (
        alt.Chart(alt.NamedData("values"))
        .mark_point(filled=True, size=28, opacity=0.85)
        .encode(
            x=alt.X("batch:Q", axis=alt.Axis(title="batch", tickMinStep=1, grid=False)),
            y=_result_axis("time_s", "time of an iteration", "s"),
            color=_kinds(alt.Color, kinds, [PALETTE[0], PALETTE[5]], legend),
            shape=_kinds(alt.Shape, kinds, ["circle", "cross"], legend),
            tooltip=["batch:Q", alt.Tooltip("time_s:Q", format=".5~s"), "kind:N"],
        )
    )
    return figure(alt.layer(*_result(), points), 150, "", "Time of each batch.", {}).spec


def power_samples() -> dict[str, Any]:
    """Power at each refresh of the sensor, around the result and its 95 % interval.

    Of data named `values` (`after_s`, `power_w`) and `result`.
    """
    points = (
        alt.Chart(alt.NamedData("values"))
        .mark_point(filled=True, size=28, opacity=0.85, color=PALETTE[2])
        .encode(
            x=alt.X("after_s:Q", axis=si_axis("since the window began", "s", grid=False)),
            y=_result_axis("power_w", "power", "W"),
            tooltip=[
                alt.Tooltip("after_s:Q", format=".3f"),
                alt.Tooltip("power_w:Q", format=".5~s"),
            ],
        )
    )
    label = "Power at each refresh of the sensor."
    return figure(alt.layer(*_result(), points), 150, "", label, {}).spec


def _result() -> list[alt.Chart]:
    base = alt.Chart(alt.NamedData("result"))
    band = base.mark_rect(opacity=0.15, color=INK).encode(y="low:Q", y2="high:Q")
    return [band, base.mark_rule(color=INK, strokeDash=[5, 3]).encode(y="value:Q")]


def _result_axis(field: str, title: str, unit: str) -> alt.Y:
    axis = si_axis(title, unit, tickCount=4)
    return alt.Y(f"{field}:Q", axis=axis, scale=alt.Scale(zero=False))


def _kinds(channel: Any, kinds: list[str], values: list[str], legend: alt.Legend) -> Any:
    return channel("kind:N", scale=alt.Scale(domain=kinds, range=values), legend=legend)
