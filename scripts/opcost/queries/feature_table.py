"""The features and costs of measured tuples as one table, to train other predictors on."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from opcost.databases.database import read_database
from opcost.databases.model_ratios import read_ratios
from opcost.errors import OpcostError
from opcost.files import check_output, replacing
from opcost.prediction.features import features_of
from opcost.rows import records, schemas
from opcost.rows.comma_separated import write_csv
from opcost.rows.nested import as_json
from opcost.rows.quantities import ENERGY, POWER, TIME
from opcost.rows.runs import ModelRatio
from opcost.tuples.operator_tuple import OperatorTuple

_WHICH = ("target", "conditions_id", "device_name", "tuple_id", "description", "operator")
_COSTS = (*TIME.names, *POWER.names, *ENERGY.names, "energy_reason", "status", "error", "flags")
_TAKEN = (*_WHICH, "flops", "bytes", *_COSTS)
_TEXTS = ("form", "kind", "dtype", "arguments")


def export_features(database: Path, output: Path) -> int:
    """Write a line for each row of a database as CSV or Parquet, by the suffix of `output`, and
    return the row count. Unknown values are null.

    Raises OpcostError for other suffixes, and like `read_database`.
    """
    if output.suffix not in (".csv", ".parquet"):
        raise OpcostError(
            f"{output}: --features writes one table; name an output that ends in .csv or .parquet"
        )
    read = read_database(database, (*_TAKEN, "canonical_json")).to_pylist()
    check_output(output, [database])
    ratios = read_ratios(database)
    rows = [_row(row, ratios.get(row.get("conditions_id") or row["target"], ())) for row in read]
    kinds = {field.name: field.type for field in schemas.MERGED}
    kinds = {name: kinds[name] for name in _TAKEN} | dict.fromkeys(_TEXTS, pa.string())
    kinds |= {"intensity_flops_per_byte": pa.float64(), "models": pa.list_(pa.string())}
    sizes = {name for row in rows for name in row} - {*kinds, "canonical_json"}
    schema = pa.schema({**kinds, **dict.fromkeys(sorted(sizes), pa.int64())})
    table = pa.Table.from_pylist(rows, schema)
    if output.suffix == ".parquet":
        records.write_table(output, table)
    else:
        with replacing(output) as temporary:
            write_csv(temporary, schema, table.to_batches())
    return len(table)


def _row(row: Mapping[str, Any], ratios: Sequence[ModelRatio]) -> dict[str, Any]:
    call, flops, moved = OperatorTuple.from_json(row["canonical_json"]), row["flops"], row["bytes"]
    found = features_of(call, flops, moved or 0)
    arguments, tensors = json.loads(row["canonical_json"])["arguments"], dict(call.tensors)
    models = {each.model: each.calls for each in ratios if each.calls}
    return {
        **found.named_sizes,
        **row,
        "form": found.form,
        "kind": found.kind,
        "dtype": " ".join(dict.fromkeys(spec.dtype for _, spec in call.tensors)) or None,
        "arguments": as_json({name: arguments[name] for name in arguments if name not in tensors}),
        "intensity_flops_per_byte": flops / moved if flops is not None and moved else None,
        "models": [name for name in models if row["tuple_id"] in models[name]] if models else None,
    }
