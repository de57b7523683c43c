"""Section: how good are the measurements? Failures, flags, convergence, reproducibility."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from opcost.report.results import NOTHING, Results
from opcost.report.theme import Figure, decades, figure, targets_scale
from opcost.rows.flags import meaning
from opcost.rows.quantities import TIME
from opcost.text import percent

_POINTS = 101


@dataclass(frozen=True)
class Quality:
    """`facts` and `flags` are tables with a column for each target.

    `failures` are (target, status, error, operators, example); `refused` are (model, reason).
    """

    facts: list[list[str]]
    flags: list[list[str]]
    failures: list[tuple[str, str, str, int, str]]
    refused: list[tuple[str, str]]
    value_dependent: list[tuple[str, int]]
    figure: Figure | None


def quality(results: Results) -> Quality:
    """The quality of the measurements on all targets."""
    models = results.models
    return Quality(
        _facts(results),
        _flags(results),
        _failures(results),
        [(row["model"], row["reason"]) for row in models if not row["extracted"]],
        [
            (row["model"], row["value_dependent_tuples"])
            for row in models
            if row["value_dependent_tuples"]
        ],
        _widths(results),
    )


def _facts(results: Results) -> list[list[str]]:
    frame = results.operators
    columns: list[list[str]] = []
    for target in results.targets:
        rows = frame[frame["target"] == target]
        ok = rows[rows["status"] == "ok"]
        flagged = sum(len(flags) > 0 for flags in ok["flags"])
        variations = (row[TIME.run_sd] for row in results.compared(target))
        columns.append(
            [
                str(len(rows)),
                str(len(ok)),
                str(len(rows) - len(ok)),
                str(flagged),
                _known(ok["time_half_width"].median()),
                _known(ok["power_half_width"].median()),
                _known(next((sd for sd in variations if sd is not None), np.nan)),
            ]
        )
    titles = (
        "operator tuples",
        "measured",
        "failed",
        "with a flag",
        "half of the 95 % interval of time, median",
        "half of the 95 % interval of power, median",
        "run-to-run variation (standard deviation)",
    )
    return [[title, *cells] for title, *cells in zip(titles, *columns, strict=True)]


def _known(value: float) -> str:
    return "unknown" if np.isnan(value) else f"{value:.2%}"


def _flags(results: Results) -> list[list[str]]:
    """Flag, meaning, and the number of measured operators with it on each target."""
    counts = []
    for target in results.targets:
        rows = results.measured(target)
        found = Counter(flag for flags in rows["flags"] for flag in flags)
        counts.append((found, len(rows)))
    names = sorted({flag for found, _ in counts for flag in found})
    return [
        [
            name,
            meaning(name),
            *(
                f"{found[name]} ({percent(found[name] / total)})" if found[name] else NOTHING
                for found, total in counts
            ),
        ]
        for name in names
    ]


def _failures(results: Results) -> list[tuple[str, str, str, int, str]]:
    frame = results.operators
    failed = frame[frame["status"] != "ok"].fillna({"error": "no error is given"})
    groups = failed.groupby(["target", "status", "error"], sort=False)["description"]
    return [(*key, len(group), group.iloc[0]) for key, group in groups]


def _widths(results: Results) -> Figure | None:
    """The distribution of the relative half-widths of time intervals, on each target."""
    values: list[dict[str, Any]] = []
    for target in results.targets:
        widths = results.measured(target)["time_half_width"].dropna()
        widths = widths[widths > 0]
        if widths.empty:
            continue
        shares = np.linspace(0, 1, _POINTS)
        values += [
            {"target": target, "width": float(width), "share": float(share)}
            for width, share in zip(np.quantile(widths, shares), shares, strict=True)
        ]
    if not values:
        return None
    colour, _ = targets_scale(results.targets)
    scale, ticks = decades([row["width"] for row in values])
    chart = (
        alt.Chart(alt.NamedData("widths"))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X(
                "width:Q",
                scale=scale,
                axis=alt.Axis(format="~%", title="half of the 95 % interval", values=ticks),
            ),
            y=alt.Y("share:Q", axis=alt.Axis(format="%", title="operators", tickCount=5)),
            color=colour,
            strokeDash=alt.StrokeDash("target:N", legend=None, sort=results.targets),
        )
    )
    title = "Share of operators whose time is known at least so well"
    label = "Share of operators against the half-width of their interval."
    return figure(chart, 180, title, label, {"widths": values})
