"""Section: how good are the measurements? Failures, flags, intervals, run-to-run variation."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from opcost.report.results import NOTHING, Results
from opcost.rows.flags import meaning
from opcost.rows.quantities import TIME
from opcost.text import percent

Cells = list[dict[str, str]]


@dataclass(frozen=True)
class Quality:
    """Tables as title -> text of each row; `refused` are (model, reason)."""

    facts: Cells
    flags: Cells
    failures: Cells
    refused: list[tuple[str, str]]
    value_dependent: list[tuple[str, int]]


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
    )


def _facts(results: Results) -> Cells:
    frame = results.operators
    found: dict[str, dict[str, str]] = {}
    for target in results.targets:
        rows = frame[frame["target"] == target]
        ok = rows[rows["status"] == "ok"]
        variations = (row[TIME.run_sd] for row in results.compared(target))
        found[target] = {
            "measured": f"{len(ok):,}",
            "failed": f"{len(rows) - len(ok):,}",
            "with a flag": f"{sum(len(flags) > 0 for flags in ok['flags']):,}",
            "half of the 95 % interval of time, median": _known(ok["time_half_width"].median()),
            "half of the 95 % interval of power, median": _known(ok["power_half_width"].median()),
            "run-to-run variation (standard deviation)": _known(
                next((sd for sd in variations if sd is not None), np.nan)
            ),
        }
    titles = next(iter(found.values()), {})
    return [
        {"operators": title, **{target: facts[title] for target, facts in found.items()}}
        for title in titles
    ]


def _known(value: float) -> str:
    return "unknown" if np.isnan(value) else f"{value:.2%}"


def _flags(results: Results) -> Cells:
    """Each flag, its meaning, and the number of measured operators with it on each target."""
    counts = {}
    for target in results.targets:
        rows = results.measured(target)
        counts[target] = Counter(flag for flags in rows["flags"] for flag in flags), len(rows)
    return [
        {
            "flag": name,
            **{
                target: f"{found[name]} ({percent(found[name] / total)})"
                if found[name]
                else NOTHING
                for target, (found, total) in counts.items()
            },
            "meaning": meaning(name),
        }
        for name in sorted({flag for found, _ in counts.values() for flag in found})
    ]


def _failures(results: Results) -> Cells:
    frame = results.operators
    failed = frame[frame["status"] != "ok"].fillna({"error": "no error is given"})
    groups = failed.groupby(["target", "status", "error"], sort=False)["description"]
    return [
        {
            "status": str(status),
            "target": str(target),
            "operators": str(len(group)),
            "example": group.iloc[0],
            "error": str(error),
        }
        for (target, status, error), group in groups
    ]
