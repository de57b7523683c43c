"""Section: what failed, was not extracted, or is valid for one input only."""

from dataclasses import dataclass

from opcost.report.results import Results

Cells = list[dict[str, str]]


@dataclass(frozen=True)
class Quality:
    """`failures` are a table, title -> text of each row; `refused` are (model, reason)."""

    failures: Cells
    refused: list[tuple[str, str]]
    value_dependent: list[tuple[str, int]]


def quality(results: Results) -> Quality:
    """The quality of the measurements on all targets."""
    models = results.models
    return Quality(
        _failures(results),
        [(row["model"], row["reason"]) for row in models if not row["extracted"]],
        [
            (row["model"], row["value_dependent_tuples"])
            for row in models
            if row["value_dependent_tuples"]
        ],
    )


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
