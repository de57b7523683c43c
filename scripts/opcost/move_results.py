"""`python -m opcost.move_results`: move results of the former layout to their present places.

Files of schema version 14, the last before the first release, become version 1, which has the same
columns. To be deleted before that release. Nothing is measured again, and nothing is deleted but
tables and plans, which the next run makes again.
"""

import argparse
import json
import pickle
import shutil
from collections import defaultdict
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from opcost.addresses import conditions_address, definition_address, extraction_address
from opcost.devices.device_file import read_device
from opcost.devices.kinds import kind_of
from opcost.errors import reported
from opcost.files import read_json, replacing, write_json
from opcost.models.definition import ModelDefinition
from opcost.results_folder import (
    MODELS,
    RESULTS,
    extraction,
    recording,
    series_named,
    settings_file,
    target_folder,
)
from opcost.rows import records, schemas
from opcost.rows.versions import SCHEMA_VERSION
from opcost.run_lock import RunLock
from opcost.study import Conditions
from opcost.tuples.model_tuples import read_model_tuples

_TABLES = ("operator_tuples.json", ".made")
_LAST_VERSION = "14"
_LAST_VERSION_OF_TUPLES = 5
_VALUES_OF_A_SAMPLE = 10


def move_results(results: Path = RESULTS) -> int:
    """Move all measurements of a folder. Returns how many."""
    moved = {}
    for path in [*results.glob("tuples/[!.]*.pkl"), *results.glob("*/calls/[!.]*.pkl")]:
        _renumber_tuples(path)
    for path in sorted((results / "tuples").glob("[!.]*.pkl")):
        tuples = read_model_tuples(path)
        if tuples.definition is not None and path.stem == tuples.model:
            address = extraction_address(tuples.definition, {"torch_version": tuples.torch_version})
            path.rename(extraction(address, results))
            moved[tuples.model] = address
    number = sum(_move_target(each.parent, moved) for each in results.glob("*/device.json"))
    for name in _TABLES:
        path = results / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return number


def _move_target(folder: Path, extractions: dict[str, str]) -> int:
    """Each row goes where its conditions are; what is known of the device, beside the most rows."""
    for path in [folder / "device.json", *folder.glob("overhead_*.json")]:
        _drop_procedure(path)
    device = asdict(read_device(folder / "device.json"))
    rows: dict[str, list[tuple[Path, dict[str, Any]]]] = defaultdict(list)
    for series in folder.glob("*/"):
        if known := series_named(series.name):
            for path in series.glob("[!.]*.parquet"):
                schema = schemas.MEASUREMENTS[known.kind]
                _renumber_row(path, schema)
                [row] = records.read(path, schema).to_pylist()
                rows[_address(row, device)].append((path, row))
    for address, found in rows.items():
        there = target_folder(folder.name, address, folder.parent)
        for path, row in found:
            name = path.name
            if path.parent.name.startswith(MODELS):
                definition = ModelDefinition.from_json(row["definition_json"])
                name = f"{definition_address(definition)}.parquet"
            (there / path.parent.name).mkdir(parents=True, exist_ok=True)
            path.rename(there / path.parent.name / name)
        newest = max((row for _, row in found), key=lambda row: str(row["ended_at"]))
        settings_file(there).write_text(newest["conditions_json"] + "\n")
    if rows:
        there = target_folder(
            folder.name, max(rows, key=lambda each: len(rows[each])), folder.parent
        )
        for path in folder.glob("calls/[!.]*.pkl"):
            if path.stem in extractions:
                kept = recording(there, extractions[path.stem])
                kept.parent.mkdir(exist_ok=True)
                path.rename(kept)
        for path in folder.glob("*.json"):
            path.rename(there / path.name)
    for rest in folder.iterdir():
        if rest.name not in rows:
            shutil.rmtree(rest) if rest.is_dir() else rest.unlink()
    return sum(map(len, rows.values()))


def _address(row: dict[str, Any], device: dict[str, Any]) -> str:
    """Where the next run on the same device looks for a row."""
    conditions = Conditions.from_json(row["conditions_json"])
    kind = kind_of(device["device"])
    known = device | {name: value for name, value in row.items() if value is not None}
    names = ["torch_version", "cuda_version", *(kind.recorded() if kind else ())]
    if kind is not None and not kind.is_processor and known["device_uuid_hash"]:
        names += ["device_uuid_hash", "power_limit_w"]
    environment = {name: known.get(name) for name in names}
    requested = conditions.target.device
    on = requested if requested != "auto" else device["device"].partition(":")[0]
    return conditions_address(conditions, on, environment)


def _renumber_row(path: Path, schema: pa.Schema) -> None:
    stated = pq.read_schema(path).metadata
    if stated.get(b"opcost.schema_version") != _LAST_VERSION.encode():
        return
    rows = pq.read_table(path).to_pylist()
    for row in rows:
        row["schema_version"] = SCHEMA_VERSION
        if row.get("definition_json"):
            row["definition_json"] = _renamed_dtype(row["definition_json"])
    records.write(path, schema, rows)


def _renumber_tuples(path: Path) -> None:
    document = pickle.loads(path.read_bytes())
    if document["schema_version"] != _LAST_VERSION_OF_TUPLES:
        return
    if document["definition"]:
        document["definition"] = _renamed_dtype(document["definition"])
    with replacing(path) as temporary:
        temporary.write_bytes(pickle.dumps(document | {"schema_version": 1}, protocol=4))


def _drop_procedure(path: Path) -> None:
    """Samples of call overhead had the number of their procedure; all others are of the same."""
    document = read_json(path, "delete it and run again")
    samples = document.get("overhead") or []
    if any(len(each) > _VALUES_OF_A_SAMPLE for each in samples):
        write_json(path, document | {"overhead": [[*each[:4], *each[5:]] for each in samples]})


def _renamed_dtype(definition: str) -> str:
    """A model that is not converted to another dtype stated `float32`."""
    document = json.loads(definition)
    if document["dtype"] == "float32" and not document.pop("converted", False):
        document["dtype"] = None
    return ModelDefinition.from_json(json.dumps(document)).to_json()


def main() -> None:
    """Move what is in the folder of results, and say so."""
    argparse.ArgumentParser(
        prog="python -m opcost.move_results",
        description=f"Move all of {RESULTS} that has the layout of before the first release to its "
        "present places. Nothing is measured again.",
    ).parse_args()
    if not any(RESULTS.glob("*/device.json")):
        print(f"Nothing to move: {RESULTS.resolve()} has no measurements of the former layout")
        return
    with reported(), closing(RunLock()) as lock:
        lock.hold("opcost.move_results")
        print(f"{move_results()} measurements moved: run the study again to make its tables")


if __name__ == "__main__":
    main()
