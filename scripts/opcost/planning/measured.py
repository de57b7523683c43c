"""The rows that a target has, from its results folder, under the conditions of a study."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opcost.launch_modes import EAGER
from opcost.results_folder import MODELS, OPERATORS, measurements, target_folder
from opcost.rows import records, schemas
from opcost.rows.quantities import TIME
from opcost.study import Study

Row = Mapping[str, Any]

_COLUMNS = ("status", "flags", *TIME.names, "core_speed_per_s", "started_at", "device_time_s")


def measured_tuples(study: Study, target: str, results: Path, number: int = 1) -> Sequence[Row]:
    """The rows of all tuples in a round, of this study or another. Raises OpcostError for a damaged
    file.
    """
    return records.measured_under(
        study.conditions[target],
        measurements(target_folder(target, results), OPERATORS, number),
        schemas.OPERATOR,
        ("tuple_id", *_COLUMNS),
    )


def measured_wholes(
    study: Study, target: str, results: Path, number: int = 1, launch_mode: str = EAGER
) -> Sequence[Row]:
    """The rows of all whole models in a round or launch mode, of this study or another. Raises
    OpcostError for a damaged file.
    """
    return records.measured_under(
        study.conditions[target],
        measurements(target_folder(target, results), MODELS, number, launch_mode),
        schemas.MODEL,
        ("model", "definition_json", *_COLUMNS),
    )


def as_defined(study: Study, rows: Sequence[Row]) -> list[Row]:
    """Rows of whole models, without those that the study defines otherwise."""
    definitions = {name: model.to_json() for name, model in study.models.items()}
    return [
        row
        for row in rows
        if definitions.get(row["model"], row["definition_json"]) == row["definition_json"]
    ]
