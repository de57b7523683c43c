"""Section: where does the time go? Costs of each model by module path."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import altair as alt

from opcost.report.results import Results, Row
from opcost.report.theme import Figure, figure, si_axis, targets_scale
from opcost.rows.quantities import TIME, Quantity

_GROUPS = 12
_HEIGHT = 320

Path: TypeAlias = "tuple[str, ...]"
"""A module path, in its parts; that of the model itself is empty."""


def module_groups(rows: Sequence[Row], quantity: Quantity = TIME) -> list[dict[str, Any]]:
    """A model's cost by about a dozen module paths, the same on every target.

    Starting from the whole model, the most expensive group is repeatedly expanded into its
    submodules, until there are a dozen groups or none can be expanded. Paths are in natural order;
    groups with an unmeasured operator are omitted.
    """
    column = quantity.value
    by_target: dict[str, list[Row]] = defaultdict(list)
    costs: dict[Path, float] = defaultdict(float)
    for row in rows:
        by_target[row["target"]].append(row)
    for parts in by_target.values():
        total = sum(row[column] or 0 for row in parts) or 1
        for row in parts:
            costs[_path(row)] += (row[column] or 0) / total
    found = []
    groups = _opened(costs)
    for key in sorted(groups, key=_natural):
        for target, parts in by_target.items():
            group = _group(key, parts, groups, column)
            if group["value"] is not None:
                found.append({"target": target, **group})
    return found


def _opened(costs: Mapping[Path, float]) -> dict[Path, list[Path]]:
    """Paths by the group that they are in."""
    groups: dict[Path, list[Path]] = {(): list(costs)}
    closed: set[Path] = set()
    while len(groups) < _GROUPS and closed != set(groups):
        totals = {key: sum(costs[path] for path in groups[key]) for key in groups.keys() - closed}
        largest = max(sorted(totals), key=lambda key: totals[key])
        parts: dict[Path, list[Path]] = defaultdict(list)
        for path in groups[largest]:
            parts[path[: len(largest) + 1]].append(path)
        if set(parts) == {largest} or len(groups) + len(parts) > 2 * _GROUPS:
            closed.add(largest)
        else:
            del groups[largest]
            groups |= parts
            closed |= {largest} & set(parts)
    return groups


def by_module(results: Results, quantity: Quantity) -> Figure | None:
    """The module paths of the model selected below the chart, on every target."""
    values: list[dict[str, Any]] = []
    by_model: dict[str, list[Row]] = defaultdict(list)
    for row in results.modules:
        by_model[row["model"]].append(row)
    for model, rows in by_model.items():
        values += [{"model": model, **group} for group in module_groups(rows, quantity)]
    if not values:
        return None
    models = list(dict.fromkeys(row["model"] for row in values))
    choice = alt.param(
        name=f"model_{quantity}",
        value=models[0],
        bind=alt.binding_select(options=models, name="model "),
    )
    colour, _ = targets_scale(results.targets)
    axis = si_axis(f"{quantity} of an iteration", quantity.symbol, tickCount=6)
    cost = alt.Tooltip("value:Q", format=".3~s", title=quantity.name)
    tooltip = ["module:N", "target:N", "classes:N", "calls:Q", cost]
    chart = (
        alt.Chart(alt.NamedData("modules"))
        .add_params(choice)
        .transform_filter(f"datum.model === model_{quantity}")
        .mark_bar()
        .encode(
            y=alt.Y("module:N", sort=None, title=None, axis=alt.Axis(labelLimit=150)),
            yOffset=alt.YOffset("target:N", sort=results.targets),
            x=alt.X("value:Q", axis=axis),
            color=colour,
            tooltip=tooltip,
        )
    )
    title = f"{quantity.name.capitalize()} by module"
    label = f"{quantity} of the operators of a model, by the modules that call them."
    return figure(chart, _HEIGHT, title, label, {"modules": values})


def _group(
    key: Path, rows: Sequence[Row], groups: Mapping[Path, Sequence[Path]], column: str
) -> dict[str, Any]:
    members = set(groups[key])
    inside = [row for row in rows if _path(row) in members]
    amounts = [row[column] for row in inside]
    classes = sorted({row["module_class"] for row in inside})
    return {
        "module": ".".join(key) or "(the model itself)",
        "classes": ", ".join(classes[:4]) + (", …" if len(classes) > 4 else ""),
        "calls": sum(row["calls"] for row in inside),
        "value": None if None in amounts else sum(amounts),
    }


def _path(row: Row) -> Path:
    return tuple(row["module_path"].split(".")) if row["module_path"] else ()


def _natural(key: Path) -> list[Any]:
    """`layer10` comes after `layer2`."""
    split = re.split(r"(\d+)", ".".join(key))
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in split]
