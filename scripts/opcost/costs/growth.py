"""How many operators it takes until their time is near that of the model end to end."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from opcost.costs.explanation import Explanation
from opcost.rows.quantities import TIME
from opcost.text import counted, percent, seconds, table, wrapped


def growth(explanation: Explanation, share: float) -> dict[str, Any]:
    """The measured parts of a model's time on a target, costliest first, as JSON data: each with
    the sum up to it relative to the time end to end (None if unknown), and the least number of
    them (`reached`, None if there is none) of which that differs from 1 by at most 1 - `share`.
    """
    end_to_end_s = explanation.compared[TIME.of("end_to_end").value]
    parts = [part for part in explanation.parts(TIME) if not part.is_rest]
    sums = (
        [sum_s / end_to_end_s for sum_s in accumulate(p.amount or 0.0 for p in parts)]
        if end_to_end_s
        else []
    )
    near = (number for number, each in enumerate(sums, 1) if abs(each - 1) <= 1 - share)
    return {
        "target": explanation.target,
        "share": share,
        "end_to_end_time_s": end_to_end_s,
        "parts": [
            {"name": part.name, "calls": part.calls, "time_s": part.amount, "sum": each}
            for part, each in zip(parts, sums or [None] * len(parts), strict=True)
        ],
        "reached": next(near, None),
        "unmeasured_tuples": len(explanation.missing),
    }


def growth_text(growth: Mapping[str, Any]) -> str:
    """The parts until the share is reached, and what the others take."""
    parts, reached, known_s = growth["parts"], growth["reached"], growth["end_to_end_time_s"]
    aim = f"until {growth['share']:.4g} of the time end to end on {growth['target']}"
    if known_s is None:
        return "\n".join(wrapped([f"{aim}: no such time is beside its database; opcost run"]))
    rows = [
        [each["name"], str(each["calls"] or ""), seconds(each["time_s"]), percent(each["sum"], 1)]
        for each in parts[:reached]
    ]
    if reached is None:
        text = f"Never: all of them take {rows[-1][-1] if rows else 'nothing'}"
    else:
        rest_s = sum(each["time_s"] for each in parts[reached:])
        others = counted(len(parts) - reached, "other part")
        text = f"{others}: {seconds(rest_s)}, {percent(rest_s / known_s, 1)}"
    if parts and (whole := parts[-1]["sum"]) > 1:
        text += f"; the sum of all, {percent(whole, 1)}," if reached else ", which"
        text += " exceeds the time end to end"
    text += f"; {counted(growth['unmeasured_tuples'], 'tuple')} not measured"
    lines = table([f"{aim}, {seconds(known_s)}", "calls", "time", "sum"], rows)
    return "\n".join([*lines, *wrapped([text])])
