"""The comparison as a picture of its own: an SVG with the report's colours."""

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from opcost.costs.terms import Row
from opcost.files import replacing
from opcost.report.colours import MISSING, colours
from opcost.report.operator_costs import AS_SHARES, ROW_HEIGHT, Stacks, datasets, stacked, stacks
from opcost.report.theme import CONFIG
from opcost.rows.quantities import COMPARED, ENERGY, TIME, Quantity

_WIDTH = 640
_LEGEND = alt.Legend(title=None, columns=5, symbolType="square")
_NOTHING = "nothing measured"


def draw(path: Path, comparison: Sequence[Row], shares: Sequence[Row]) -> None:
    """Write the picture: each model's operators, stacked, above the end-to-end measurement.

    A row of panels for each target: time, and energy if any was measured. Lines are 95 %
    intervals. An incomplete stack is labelled with its number of operators.
    """
    named = colours(comparison, shares)
    panels: dict[tuple[str, Quantity], Stacks] = {}
    for target in dict.fromkeys(row["target"] for row in comparison):
        rows, parts = (
            [row for row in table if row["target"] == target] for table in (comparison, shares)
        )
        for quantity in _quantities(comparison):
            found = stacks(rows, parts, quantity, named)
            if found.bars:
                panels[target, quantity] = found
    names = {name for found in panels.values() for name in found.names}
    data: dict[str, Any] = {}
    charts: dict[str, list[Any]] = {}
    for (target, quantity), found in panels.items():
        prefix = f"{target} {quantity} "
        data |= datasets(found, named, prefix)
        chart = stacked(found, names, quantity, named, prefix, _LEGEND, _WIDTH).properties(
            width=_WIDTH,
            height=ROW_HEIGHT * len({bar["model"] for bar in found.bars}),
            title=alt.Title(f"{target}: {quantity} of an iteration", anchor="start"),
        )
        charts.setdefault(target, []).append(chart)
    svg = _svg(alt.vconcat(*(alt.hconcat(*row) for row in charts.values())), data)
    with replacing(path) as temporary:
        temporary.write_text(svg, encoding="utf-8")


def _quantities(comparison: Sequence[Row]) -> Sequence[Quantity]:
    measured = any(row[ENERGY.of("end_to_end").value] is not None for row in comparison)
    return COMPARED if measured else [TIME]


def _svg(chart: alt.VConcatChart, data: dict[str, Any]) -> str:
    if not data:
        chart = alt.vconcat(alt.Chart(alt.Data(values=[{}])).mark_text(text=_NOTHING))
    chart = chart.add_params(alt.param(name=AS_SHARES, value=False))
    spec = chart.to_dict() | {"datasets": data, "config": CONFIG | {"background": "white"}}
    style = (files("opcost.report") / "assets" / "page.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"--(\w+): (#\w+);", style.partition("}")[0]))
    return vl_convert.vegalite_to_svg(_resolved(spec, light))


def _resolved(part: Any, light: dict[str, str]) -> Any:
    """Without variables of the page's style sheet, which stand for its light colours here."""
    if isinstance(part, dict):
        return {name: _resolved(value, light) for name, value in part.items()}
    if isinstance(part, list):
        return [_resolved(value, light) for value in part]
    if part == MISSING:
        return light["grid"]
    variable = re.fullmatch(r"var\(--(\w+)\)", part) if isinstance(part, str) else None
    return light[variable[1]] if variable else part
