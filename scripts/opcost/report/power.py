"""Section: does power differ between operators?

If all operators drew the same power, energy would be proportional to time, and measuring it would
add no information. The best constant is total joules divided by total seconds.
"""

from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd

from opcost.report.colours import Colours
from opcost.report.roofline import launch_bound
from opcost.report.scatter import layer, scatter
from opcost.report.theme import INK, Figure, decades, figure, si_axis
from opcost.rows.flags import LAUNCH_BOUND


@dataclass(frozen=True)
class Power:
    """How energy differs from time x mean power, on one target.

    `rms`, `low` and `high` are of energy / (time x mean power) - 1: root mean square, and the
    limits of the middle 90 % of operators. `half_width` is the median of power's own.
    """

    operators: int
    mean_power_w: float
    idle_power_w: float | None
    rms: float
    low: float
    high: float
    half_width: float | None

    @property
    def sentences(self) -> str:
        """The answer in words."""
        if self.half_width is None:
            answer, own = "Unknown", "The uncertainty of power is unknown."
        else:
            answer = "Yes" if self.rms > 2 * self.half_width else "Hardly"
            own = f"The median uncertainty of power is {self.half_width:.1%}."
        return (
            f"{answer}. Mean power over {self.operators:,} operators is {self.mean_power_w:.4g} W. "
            f"An operator's energy differs from time x mean power by {self.rms:.1%} (root mean "
            f"square), for nine of ten operators by {self.low:+.0%} to {self.high:+.0%}. "
            f"{own}"
        )


def power(frame: pd.DataFrame) -> Power | None:
    """Of the measured operators of one target; None where no energy was measured."""
    rows = frame[frame["energy_j"].notna()]
    if rows.empty:
        return None
    mean_w = float(rows["energy_j"].sum() / rows["time_s"].sum())
    excess = rows["energy_j"] / (rows["time_s"] * mean_w) - 1
    idle, half_width = rows["idle_power_w"].median(), rows["power_half_width"].median()
    return Power(
        len(rows),
        mean_w,
        None if np.isnan(idle) else float(idle),
        float(np.sqrt((excess**2).mean())),
        float(excess.quantile(0.05)),
        float(excess.quantile(0.95)),
        None if np.isnan(half_width) else float(half_width),
    )


def why_not(frame: pd.DataFrame) -> list[tuple[str, int]]:
    """The reasons for which operators of one target have no energy, and how many have each."""
    missing = frame.loc[frame["energy_j"].isna(), "energy_reason"].fillna("no reason is given")
    return [(str(reason), int(count)) for reason, count in missing.value_counts().items()]


def against_time(
    frame: pd.DataFrame, target: str, found: Power, named: Colours
) -> tuple[Figure, str]:
    """Power against time, with mean and idle power; and what its marks are."""
    data = scatter(frame, "time_s", "power_w", launch_bound(frame), named)
    scale, ticks = decades([mark["x"] for mark in data.marks])
    x = alt.X("x:Q", scale=scale, axis=si_axis("time of an iteration", "s", values=ticks))
    y = alt.Y("y:Q", scale=alt.Scale(zero=True), axis=si_axis("power", "W"))
    tooltip = [
        alt.Tooltip("x:Q", title="time (s)", format=".3~s"),
        alt.Tooltip("y:Q", title="power (W)", format=".3~s"),
    ]
    levels = [{"y": found.mean_power_w, "text": f"mean {found.mean_power_w:.4g} W"}]
    if found.idle_power_w is not None:
        levels.append({"y": found.idle_power_w, "text": f"idle {found.idle_power_w:.4g} W"})
    base = alt.Chart(alt.NamedData("levels")).encode(y="y:Q")
    rules = base.mark_rule(strokeDash=[5, 3], color=INK)
    names = base.mark_text(align="right", dy=-6, fontSize=11).encode(
        x=alt.value("width"), text="text:N"
    )
    chart = alt.layer(rules, layer(data, x, y, tooltip, named), names)
    label = f"Power of operators on {target} against their time, which is logarithmic."
    datasets = {"marks": data.marks, "levels": levels}
    columns = {"x": "time_s", "y": "power_w", "hollow": LAUNCH_BOUND}
    return figure(chart, 300, f"{target}: power against time", label, datasets, columns), data.note
