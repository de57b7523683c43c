"""The table of a study's models, before any measurement: rows and text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from opcost.groups import grouped
from opcost.models import zoo
from opcost.text import counted, table
from opcost.tuples.model_tuples import ModelTuples, total_flops

Row = Mapping[str, Any]


def rows_of(models: Sequence[ModelTuples]) -> list[dict[str, Any]]:
    """A row for each model, with the columns of `schemas.EXTRACTION`."""
    holders = Counter(tuple_id for model in models for tuple_id in model.by_id)
    return [_row(model, holders) for model in models]


def _row(model: ModelTuples, holders: Mapping[str, int]) -> dict[str, Any]:
    definition = model.definition
    assert definition is not None
    shapes = " ".join(map(str, definition.inputs))
    row = {
        "model": model.model,
        "family": zoo.family(definition.model),
        "inputs": f"[{shapes}]" if definition.inputs_in_list else shapes,
        "definition_json": definition.to_json(),
        "extracted": model.refusal is None,
        "reason": model.refusal,
        "torch_version": model.torch_version,
        "extraction_s": model.extraction_s,
    }
    return row if model.refusal is not None else row | _counts(model, holders)


def _counts(model: ModelTuples, holders: Mapping[str, int]) -> dict[str, Any]:
    kernels = model.kernels()
    calls = sum(count for _, count in kernels)
    return {
        "calls": calls,
        "view_calls": len(model.calls) - calls,
        "tuples": len(kernels),
        "view_tuples": len(model.by_id) - len(kernels),
        "shared_tuples": sum(holders[record.operator_tuple.tuple_id] > 1 for record, _ in kernels),
        "value_dependent_tuples": sum(record.value_dependent for record, _ in kernels),
        "flops": total_flops(kernels),
        "parameters": model.parameters,
        "activation_peak_bytes": model.activation_peak_bytes,
    }


def as_text(rows: Sequence[Row], unique_tuples: int) -> str:
    """The rows as text. `unique_tuples` counts the tuples of all models that launch kernels."""
    extracted = [row for row in rows if row["extracted"]]
    header = [
        "model", "family", "inputs", "calls", "views", "tuples", "shared", "by value", "GFLOPs",
        "Mparameters", "seconds",
    ]  # fmt: skip
    total = (
        f"{len(extracted)} of {counted(len(rows), 'model')}: {_sum(extracted, 'calls')} calls and "
        f"{_sum(extracted, 'view_calls')} of views; {_sum(extracted, 'tuples')} tuples, of which "
        f"{unique_tuples} are unique; extracted in {_sum(rows, 'extraction_s'):.0f} s"
    )
    notes = [
        "calls, tuples: those that launch kernels; views move no data.",
        "shared: tuples that another model of the study has, too; they are measured once.",
        "by value: tuples that do not occur with another seed of weights and inputs, because sizes "
        "depend on values.",
    ]
    refused = {row["model"]: row["reason"] for row in rows if not row["extracted"]}
    lines = [total, "", *table(header, [_cells(row) for row in rows]), "", *notes]
    return "\n".join([*lines, *not_extracted(refused)])


def not_extracted(refused: Mapping[str, str]) -> list[str]:
    """Lines with the models that could not be extracted, grouped by reason."""
    by_reason = grouped((reason, model) for model, reason in refused.items())
    return [
        f"Not extracted: {', '.join(models)}: {reason}." for reason, models in by_reason.items()
    ]


def _sum(rows: Sequence[Row], column: str) -> Any:
    return sum(row[column] for row in rows)


def _cells(row: Row) -> list[str]:
    counts = ("calls", "view_calls", "tuples", "shared_tuples", "value_dependent_tuples")
    numbers = [row.get(column) for column in counts]
    cells = ["-" if number is None else str(number) for number in numbers]
    for column, unit in (("flops", 1e9), ("parameters", 1e6)):
        value = row.get(column)
        cells.append("-" if value is None else f"{value / unit:.2f}")
    name = [row["model"], row["family"] or "-", row["inputs"]]
    return [*name, *cells, f"{row['extraction_s']:.1f}"]
