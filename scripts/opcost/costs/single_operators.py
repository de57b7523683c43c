"""What operators without a model cost: those that stand in the place of one in a study."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opcost.costs.terms import Row
from opcost.rows.quantities import COMPARED, ENERGY, TIME, Quantity
from opcost.rows.runs import Noise
from opcost.tuples.model_tuples import ModelTuples

_MEASURED = ("device_name", "flags", "runs")


def single_operators(
    models: Mapping[str, Sequence[ModelTuples]],
    operator_rows: Sequence[Row],
    noises: Mapping[str, Noise],
) -> Iterator[dict[str, Any]]:
    """A row for each operator without a model on each target, with the columns of the comparison
    that a headline and a sweep read, and with its tuple.

    `models` and `noises` are those of each target.
    """
    rows = {(row["target"], row["tuple_id"]): row for row in operator_rows}
    for target, subjects in models.items():
        for subject in subjects:
            if not subject.is_operator:
                continue
            [(tuple_id, record)] = subject.by_id.items()
            row = rows.get((target, tuple_id))
            columns: dict[str, Any] = {
                "model": subject.model,
                "target": target,
                "tuple_id": tuple_id,
                "flops": record.flops,
                "bytes": record.bytes,
                "batch_size": None,
                "end_to_end_measurements": None,
                **{name: None if row is None else row[name] for name in _MEASURED},
                TIME.run_sd: noises[target].variations[TIME].sd if row else None,
            }
            for quantity in COMPARED:
                reason = _why_unknown(row, quantity)
                cost = noises[target].value(row, quantity) if row and reason is None else None
                columns |= quantity.of("estimate").columns(cost)
                columns |= quantity.of("end_to_end").columns(None)
                columns[f"{quantity}_reason"] = reason
            yield columns


def _why_unknown(row: Row | None, quantity: Quantity) -> str | None:
    if row is None:
        return "not measured"
    if row["status"] != "ok":
        return f"{row['status']}: {row['error']}"
    return row["energy_reason"] if quantity == ENERGY else None
