"""What models will cost, stated before they are measured; and what they then did cost.

    PYTHONPATH=scripts python -m tests.gpu.predictions STUDY.yaml    states what is not yet stated
    PYTHONPATH=scripts python -m tests.gpu.predictions               compares: campaign/pairs.csv

Predictions are of the operators that this campaign has measured, and of those of each GPU in the
reference data. One that is stated is never changed. An estimate that is missing has a reason.
"""

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opcost.addresses import Addresses
from opcost.costs.explanation import explain, explain_in_study
from opcost.costs.known_ratios import ratios_of
from opcost.databases.aggregation import write_database
from opcost.databases.database import REFERENCE
from opcost.databases.measured import find_measured
from opcost.files import replacing
from opcost.plain_yaml import read_yaml
from opcost.results_folder import (
    DATABASE,
    MODELS,
    RESULTS,
    all_measurements,
    series_of,
    target_folders,
)
from opcost.rows import records, schemas
from opcost.rows.quantities import ENERGY, TIME
from opcost.study import SUSTAINED, load_study
from opcost.tuples.model_tuples import read_extractions
from opcost.tuples.traces import calls_on

PREDICTIONS, PAIRS = Path("campaign/predictions.csv"), Path("campaign/pairs.csv")
REFERENCES = sorted(REFERENCE.glob("h*.parquet"))
QUANTITIES = {each.value: each for each in (TIME, ENERGY)}
KEY = ("model", "target", "conditions", "quantity")
COLUMNS = (*KEY, "value", "low", "high", "reason", "stated_at")
COMPARED = (
    *("launch_mode", "measured", "measured_low", "measured_high", "difference", "within"),
    *("measured_on", "operation", "flags", "measured_reason", "measured_at"),
)


def state(study_file: Path) -> None:
    """Append the predictions of a study's models that are not stated yet."""
    addresses = Addresses(load_study(read_yaml(study_file)))
    shown = list(addresses.folders.values())
    write_database(find_measured(RESULTS, shown), DATABASE, set(), ratios_of)
    known = {tuple(row[name] for name in KEY): row for row in stated()}
    for row in predicted(addresses):
        row["stated_at"] = datetime.now(UTC).isoformat(" ", "seconds")
        known.setdefault(tuple(row[name] for name in KEY), row)
    write(PREDICTIONS, COLUMNS, list(known.values()))


def write_everything() -> bool:
    """Make the database of all rows; whether there are some."""
    measured = find_measured(RESULTS)
    if measured.operators:
        write_database(measured, DATABASE, set(), ratios_of)
    return bool(measured.operators)


def predicted(addresses: Addresses) -> Iterator[dict[str, Any]]:
    """Predictions of each model, from each source: the target, and the reference data."""
    for name in addresses.study.end_to_end:
        for target, folder in addresses.folders.items():
            keys = {"model": name, "target": target, "conditions": folder.name}
            try:
                [model] = calls_on(folder, read_extractions([addresses.extraction(name)]))
                found = [explain_in_study(model, target), *explain(model, REFERENCES)]
            except Exception as error:  # of the model, such as one that could not be extracted
                reason = f"{type(error).__name__}: {error}"
                yield from (keys | {"quantity": each, "reason": reason} for each in QUANTITIES)
                continue
            for source in found:
                if source.database != DATABASE:
                    keys |= {"target": source.target, "conditions": source.database.name}
                for column, quantity in QUANTITIES.items():
                    names = quantity.of("estimate").names
                    values = [source.compared[each] for each in names]
                    reason = source.compared[f"{quantity}_reason"] if values[0] is None else None
                    numbers = dict(zip(("value", "low", "high"), values, strict=True))
                    yield keys | {"quantity": column, **numbers, "reason": reason}


def compare() -> None:
    """Write each prediction beside each measurement of its model: all of them, flagged or not."""
    pairs = []
    for folder in target_folders(RESULTS):
        sources = {folder.name, *(each.name for each in REFERENCES)}
        paths = [each for each in all_measurements(folder) if series_of(each).kind == MODELS]
        for row in records.read_all(paths, schemas.MODEL).to_pylist() if paths else ():
            # The reference data are of bursts.
            alike = {folder.name} if row["operation"] == SUSTAINED else sources
            for each in stated():
                if each["model"] == row["model"] and each["conditions"] in alike:
                    pairs.append(each | compared(each, row))
    write(PAIRS, [*COLUMNS, *COMPARED], pairs)


def compared(prediction: Mapping[str, str], row: Mapping[str, Any]) -> dict[str, Any]:
    """What was measured, how far the prediction is from it, and whether its interval holds it."""
    value, low, high = (row[each] for each in QUANTITIES[prediction["quantity"]].names)
    least, said, most = (prediction[each] for each in ("low", "value", "high"))
    return {
        "launch_mode": row["launch_mode"],
        **{"measured": value, "measured_low": low, "measured_high": high},
        "difference": float(said) / value - 1 if said and value else None,
        "within": float(least) <= value <= float(most) if least and most and value else None,
        "measured_on": row["device_name"],
        "operation": row["operation"],
        "flags": " ".join(row["flags"] or ()),
        "measured_reason": None if value else row["error"] or row["energy_reason"],
        "measured_at": row["started_at"],
    }


def stated() -> list[dict[str, str]]:
    """The predictions so far."""
    if not PREDICTIONS.exists():
        return []
    with PREDICTIONS.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table, completely or not at all."""
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    state(Path(sys.argv[1])) if sys.argv[1:] else compare()
