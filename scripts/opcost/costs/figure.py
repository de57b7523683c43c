"""The comparison as a figure."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from opcost.costs.breakdown import WAITING, beyond_operators
from opcost.costs.caveats import CALL_OVERHEAD
from opcost.costs.terms import Row
from opcost.files import replacing
from opcost.rows.quantities import ENERGY, TIME, Quantity
from opcost.tuples.operator_tuple import short_name

# The palette of Okabe and Ito (2008), which colour-blind readers can distinguish.
_PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_OTHERS = ("other operators", "#BBBBBB")
_BEYOND = {CALL_OVERHEAD: "#E4E4E4", WAITING: "#F4F4F4"}
_REFERENCE = ("whole model", "#444444")
_BAR = 0.36
_ERROR_BARS = {"fmt": "none", "ecolor": "black", "capsize": 3, "elinewidth": 1}


def draw(path: Path, comparison: Sequence[Row], shares: Sequence[Row]) -> None:
    """Write the figure (SVG): each model's operators, stacked, above the whole model.

    A row of panels for each target: time, with call overhead or waiting, and energy if any was
    measured. Error bars are 95 % intervals. An incomplete stack is labelled with its number of
    tuples.
    """
    targets = list(dict.fromkeys(row["target"] for row in comparison)) or ["nothing measured"]
    quantities = [(TIME, "time per iteration (ms)")]
    if any(row["reference_energy_j"] is not None for row in comparison):
        quantities.append((ENERGY, "energy per iteration (mJ)"))
    models = len({row["model"] for row in comparison})
    size = (8.5 * len(quantities), (1.2 + 0.75 * models) * len(targets) + 0.4)
    with matplotlib.rc_context({"svg.hashsalt": "opcost", "svg.fonttype": "none"}):
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(len(targets), len(quantities), squeeze=False)
        for target, row_of_panels in zip(targets, panels, strict=True):
            compared = [row for row in comparison if row["target"] == target]
            parts = [row for row in shares if row["target"] == target and row["launches_kernel"]]
            for (quantity, label), axes in zip(quantities, row_of_panels, strict=True):
                _panel(axes, compared, parts, quantity)
                axes.set_xlabel(label)
                axes.set_title(f"{target}: operators, stacked, above the whole model", loc="left")
        with replacing(path) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None})


def _panel(axes: Any, comparison: Sequence[Row], shares: Sequence[Row], quantity: Quantity) -> None:
    layers = _layers(shares, quantity.value)
    operators = [values for _, _, values in layers]
    beyond = {}
    for row in comparison:
        total = sum(values.get(row["model"], 0.0) for values in operators)
        beyond[row["model"]] = beyond_operators(row, quantity, total)
    for part, colour in _BEYOND.items():
        values = {model: parts[part] for model, parts in beyond.items()}
        if any(values.values()):
            layers.append((part, colour, values))
    above = [position - _BAR / 2 - 0.02 for position in range(len(comparison))]
    below = [position + _BAR / 2 + 0.02 for position in range(len(comparison))]
    ends = [0.0] * len(comparison)
    for name, colour, values in layers:
        widths = [values.get(row["model"], 0.0) * 1e3 for row in comparison]
        axes.barh(above, widths, _BAR, ends, color=colour, label=name)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    _error_bars(axes, above, comparison, quantity.of("estimate"))
    for upper, end, row in zip(above, ends, comparison, strict=True):
        if row["measured_tuples"] < row["tuples"]:
            note = f" {row['measured_tuples']} of {row['tuples']} tuples"
            axes.text(end, upper, note, va="center", fontsize=8)
    reference = quantity.of("reference")
    widths = [(row[reference.value] or 0.0) * 1e3 for row in comparison]
    axes.barh(below, widths, _BAR, color=_REFERENCE[1], label=_REFERENCE[0])
    _error_bars(axes, below, comparison, reference)
    axes.set_yticks(range(len(comparison)), [row["model"] for row in comparison])
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=8)


def _layers(shares: Sequence[Row], column: str) -> list[tuple[str, str, dict[str, float]]]:
    """(name, colour, value by model) of each layer of the stack; the smallest share one."""
    totals: dict[str, float] = defaultdict(float)
    for row in shares:
        totals[row["operator"]] += row[column] or 0.0
    coloured = sorted(totals, key=lambda operator: -totals[operator])[: len(_PALETTE)]
    layers: list[tuple[str, str, dict[str, float]]] = [
        (short_name(operator), colour, {})
        for operator, colour in zip(coloured, _PALETTE, strict=False)
    ]
    layers.append((*_OTHERS, {}))
    for row in shares:
        position = coloured.index(row["operator"]) if row["operator"] in coloured else -1
        values = layers[position][2]
        values[row["model"]] = values.get(row["model"], 0.0) + (row[column] or 0.0)
    return [layer for layer in layers if any(layer[2].values())]


def _error_bars(
    axes: Any, positions: Sequence[float], comparison: Sequence[Row], quantity: Quantity
) -> None:
    bars = [
        (position, *(row[name] * 1e3 for name in quantity.names))
        for position, row in zip(positions, comparison, strict=True)
        if row[quantity.low] is not None
    ]
    if bars:
        heights, values, lows, highs = np.array(bars).T
        margins = [values - lows, highs - values]
        axes.errorbar(values, heights, xerr=margins, **_ERROR_BARS)
