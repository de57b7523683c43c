"""Sound files to begin with: rows, a database, a model's tuples, and what lies beside them."""

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from opcost.devices.device_file import DeviceFile, Sample
from opcost.rows import records, schemas
from opcost.tuples.manifest import collect, write_manifest
from opcost.tuples.model_tuples import write_model_tuples

from tests.synthetic_study import TARGETS, Measurements, models_of, record


@cache
def operator_row() -> dict[str, Any]:
    """A row with an energy, of a tuple that is called."""
    row = Measurements(0, 20, 20, 0).operator(5, TARGETS[0], record(5))
    return {name: row.get(name) for name in schemas.OPERATOR.names}


def row_file(folder: Path) -> Path:
    """The file of one measurement, where a study has it."""
    row = operator_row()
    path = folder / row["target"] / "cpu-0" / "operators" / f"{row['tuple_id']}.parquet"
    records.write(path, schemas.OPERATOR, [row])
    return path


def database(folder: Path, rows: int = 20) -> Path:
    """A database of several rows, compressed."""
    made = Measurements(0, 20, 20, rows)
    table = pa.Table.from_pylist(
        [made.operator(number, TARGETS[0], record(number)) for number in range(rows)],
        schema=schemas.DATABASE,
    )
    path = folder / "database.parquet"
    records.write_batches(path, schemas.DATABASE, table.to_batches(7))
    return path


def model_tuples(folder: Path) -> Path:
    """What a model executes."""
    [model] = models_of(["net"], [record(number) for number in range(6)])
    path = folder / "net-01234567.pkl"
    write_model_tuples(path, model)
    return path


def manifest(folder: Path) -> Path:
    """The unique tuples of a study."""
    path = folder / "operator_tuples.json"
    models = models_of(["one", "two"], [record(number) for number in range(12)])
    write_manifest(path, collect(models, None), [])
    return path


_DEVICE = DeviceFile(
    "cpu",
    "Simulated Processor",
    lock_key="cpu",
    quiet_s=1.5e-4,
    overhead=(Sample(2e-6, 3e-6, 1e-6, False),) * 6,
)
DEVICE: dict[str, Any] = json.loads(json.dumps(asdict(_DEVICE)))
SENSOR: dict[str, Any] = {
    "schema_version": 1,
    "readings": {
        "rapl": {
            "refresh_s": 0.1,
            "averaging_s": 0.1,
            "lag_s": 0.0,
            "rise_s": 0.25,
            "correlated_share": 0.5,
        }
    },
    "counter": {"refresh_s": 0.1},
    "idle_power_w": 60.0,
}


def write_json(path: Path, document: Any) -> Path:
    """A document as anybody may write it: NaN included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def forge(path: Path, row: dict[str, Any], schema: pa.Schema) -> None:
    """Write a row as no opcost would: unchecked."""
    table = pa.Table.from_pylist([{name: row.get(name) for name in schema.names}], schema=schema)
    pq.write_table(table, path, use_dictionary=False, write_statistics=False)
