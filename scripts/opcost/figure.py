"""The comparison as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from opcost.files import replacing
from opcost.operator_tuple import short_name

Row = Mapping[str, Any]

# Okabe and Ito's palette, which colour-blind readers can tell apart.
_PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_OTHERS = "#BBBBBB"
_WHOLE = "#444444"


def draw(path: Path, comparison: Sequence[Row], shares: Sequence[Row]) -> None:
    """Write the figure: for each model its operators, stacked, beside the whole model (SVG)."""
    targets = list(dict.fromkeys(row["target"] for row in comparison))
    quantities = [("time_s", "reference_time_s", "time per iteration (ms)")]
    if any(row["reference_energy_j"] is not None for row in comparison):
        quantities.append(("energy_j", "reference_energy_j", "energy per iteration (mJ)"))
    models = list(dict.fromkeys(row["model"] for row in comparison))
    height = 1.2 + 0.75 * len(models)
    with matplotlib.rc_context({"svg.hashsalt": "opcost", "svg.fonttype": "none"}):
        figure = Figure(
            figsize=(8.5 * len(quantities), height * len(targets) + 0.4), layout="constrained"
        )
        grid = figure.subplots(len(targets), len(quantities), squeeze=False)
        for target, axes_row in zip(targets, grid, strict=True):
            for (column, reference_column, label), axes in zip(quantities, axes_row, strict=True):
                _panel(
                    axes,
                    [row for row in comparison if row["target"] == target],
                    [row for row in shares if row["target"] == target],
                    (column, reference_column),
                )
                axes.set_xlabel(label)
                axes.set_title(f"{target}: operators, stacked, beside the whole model", loc="left")
        with replacing(path) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None})


def _panel(
    axes: Any, comparison: Sequence[Row], shares: Sequence[Row], columns: tuple[str, str]
) -> None:
    column, reference_column = columns
    totals: dict[str, float] = {}
    for row in shares:
        totals[row["operator"]] = totals.get(row["operator"], 0) + (row[column] or 0)
    ranked = sorted((name for name in totals if totals[name] > 0), key=lambda name: -totals[name])
    coloured = ranked[: len(_PALETTE)]
    labelled: set[str] = set()
    for position, model in enumerate(comparison):
        left = 0.0
        parts = {
            row["operator"]: row[column] or 0 for row in shares if row["model"] == model["model"]
        }
        others = sum(value for name, value in parts.items() if name not in coloured)
        stack = [
            (short_name(name), parts.get(name, 0), colour)
            for name, colour in zip(coloured, _PALETTE, strict=False)
        ]
        for name, value, colour in [*stack, ("other operators", others, _OTHERS)]:
            if value > 0:
                label = None if name in labelled else name
                labelled.add(name)
                axes.barh(position - 0.2, value * 1e3, 0.36, left, color=colour, label=label)
                left += value * 1e3
        whole = model[reference_column]
        if whole is not None:
            label = None if "whole model" in labelled else "whole model"
            labelled.add("whole model")
            axes.barh(position + 0.2, whole * 1e3, 0.36, color=_WHOLE, label=label)
        incomplete = model["measured_tuples"] < model["tuples"]
        if incomplete:
            note = f" {model['measured_tuples']} of {model['tuples']} tuples"
            axes.text(left, position - 0.2, note, va="center", fontsize=8)
    axes.set_yticks(range(len(comparison)), [row["model"] for row in comparison])
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=8)
