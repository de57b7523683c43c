"""Scatter plots of operators: a mark for each, or for each cell of a grid if there are many."""

from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from opcost.costs.breakdown import OTHERS
from opcost.report.colours import Colours
from opcost.report.theme import SHAPES

MAX_MARKS = 600
"""More marks are slow to draw and overlap."""
_GRIDS = (64, 48, 36, 28, 20, 14, 10)


@dataclass(frozen=True)
class Scatter:
    """Marks of a scatter plot, `x`, `y`, `name`, `hollow`, `operators` and `example` in each.

    `grid` is the number of cells on each axis, or None if every operator has its own mark.
    """

    marks: list[dict[str, Any]]
    names: list[str]
    grid: int | None

    @property
    def note(self) -> str:
        """What a reader must know of the marks."""
        if self.grid is None:
            return "Each mark is an operator."
        return (
            "Too many operators to draw each: a mark is one of those in its cell of a grid of "
            f"{self.grid} x {self.grid}, and larger for more of them."
        )


def scatter(frame: pd.DataFrame, x: str, y: str, hollow: pd.Series, named: Colours) -> Scatter:
    """The rows that have both `x` and `y` above zero, for logarithmic axes.

    `hollow` says which marks are drawn so; operators without a colour are drawn alike.
    """
    usable = (frame[x] > 0) & (frame[y] > 0)
    rows = frame.loc[usable, ["name", "description"]].assign(
        x=frame[x], y=frame[y], hollow=hollow.astype(bool), operators=1
    )
    rows["name"] = rows["name"].where(rows["name"].isin(named.names), OTHERS)
    shown = set(rows["name"])
    names = [name for name in [*named.names, OTHERS] if name in shown]
    rows = rows.rename(columns={"description": "example"})
    if len(rows) <= MAX_MARKS:
        return Scatter(_records(rows), names, None)
    for grid in _GRIDS:
        cells = _joined(rows, grid)
        if len(cells) <= MAX_MARKS:
            break
    return Scatter(_records(cells), names, grid)


def layer(data: Scatter, x: alt.X, y: alt.Y, tooltip: list[Any], named: Colours) -> alt.Chart:
    """Of data named `marks`: colour and shape are those of the operator."""
    legend = alt.Legend(title=None)
    scale = alt.Scale(domain=data.names, range=[named.of(name) for name in data.names])
    shapes = alt.Scale(
        domain=data.names, range=[SHAPES[named.places.get(name, -1)] for name in data.names]
    )
    size = (
        alt.value(40)
        if data.grid is None
        else alt.Size("operators:Q", scale=alt.Scale(range=[20, 260]), legend=None)
    )
    return (
        alt.Chart(alt.NamedData("marks"))
        .mark_point(strokeWidth=1.4)
        .encode(
            x=x,
            y=y,
            size=size,
            stroke=alt.Stroke("name:N", scale=scale, legend=legend),
            fill=alt.Fill("name:N", scale=scale, legend=legend),
            shape=alt.Shape("name:N", scale=shapes, legend=legend),
            fillOpacity=alt.condition("datum.hollow", alt.value(0), alt.value(0.55)),
            tooltip=["example:N", "operators:Q", *tooltip],
        )
    )


def _joined(rows: pd.DataFrame, grid: int) -> pd.DataFrame:
    """For each occupied cell, operator and kind of mark: the first row, and how many there are."""
    cells = {axis: _cell(rows[axis], grid) for axis in ("x", "y")}
    groups = rows.assign(column=cells["x"], row=cells["y"]).groupby(
        ["name", "hollow", "column", "row"], sort=False
    )
    joined = groups.agg(
        x=("x", "first"), y=("y", "first"), operators=("x", "size"), example=("example", "first")
    ).reset_index()
    others = joined["operators"] - 1
    more = " and " + others.astype(str) + " more"
    joined["example"] = joined["example"] + more.where(others > 0, "")
    return joined.sort_values("operators", ascending=False)


def _cell(values: pd.Series, grid: int) -> np.ndarray:
    logarithms = np.log10(values)
    span = max(logarithms.max() - logarithms.min(), 1e-9)
    return np.floor((logarithms - logarithms.min()) / span * (grid - 1e-6)).astype(int)


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    columns = ["name", "x", "y", "hollow", "operators", "example"]
    return [dict(zip(columns, row, strict=True)) for row in rows[columns].itertuples(index=False)]
