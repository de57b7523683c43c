"""The answer table: all that is known of models on targets, one number in each row, with its 95 %
interval or the reason why it is unknown. Tables and texts are views of it.

`part` is what of the model: `model`, a phase of training (`forward`), of a request (`prefill`),
`operator:NAME`, `module:PATH`, `tuple:ID`, `run:N` or `flag:NAME`; behind an @ stands a phase of
training but forward. `source` is how it is known: `estimate`, `end_to_end`, `in_context`,
`isolated`, `sweep` or a launch mode. `quantity` has its unit as a suffix. The columns of the tables
in memory (`schemas.MODEL_COSTS`, ...) are named after source, part and quantity.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from opcost.costs.comparison import Tables
from opcost.costs.trust import trust_in_all
from opcost.groups import grouped
from opcost.models.definition import COMPARED_PHASES, FORWARD
from opcost.rows import records, schemas
from opcost.rows.quantities import ENERGY, TIME, is_limit, quantity_of
from opcost.rows.runs import is_variant

Row = Mapping[str, Any]
Answer = dict[str, Any]
_Place = tuple[str, str, str]
"""Part, source and quantity."""

MODEL = "model"
_SOURCES = ("estimate", "end_to_end", "in_context", "isolated")
_PARTS = (*COMPARED_PHASES, "prefill", "token")

_CONDITIONS = ("device_name", "torch_version", "cache_state", "operation", "protocol_version")
_AXES = ("inputs", "dtype", "batch_size")
_REASONS = {
    "time_reason": TIME.error.value,
    "energy_reason": ENERGY.error.value,
    "in_context_reason": TIME.of("in_context").value,
    "provenance_differences": "tuples",
}
"""Column with a reason -> the number in whose row it stands."""
_INSTEAD = {"time_reason": TIME.value, "energy_reason": ENERGY.value}
"""The same in tables without end-to-end measurements."""

_FLAGS = {"end_to_end_flags": TIME.of("end_to_end").value, "differing_calls": "differing_calls"}
"""Column with a list of names -> the number in whose row they stand."""

_RUNS = ("end_to_end_disagreeing_s", "end_to_end_disturbed_s")
_COUNTS = "flag_counts"
_KEYS = {"model", "target", *_CONDITIONS, *_AXES, *_REASONS, *_FLAGS, *_RUNS, _COUNTS}


def all_answers(
    tables: Tables, requests: Iterable[Row] = (), sweeps: Iterable[Row] = ()
) -> list[Answer]:
    """The answers of a study: of models, their operators, modules and tuples, launch modes,
    requests and sweeps.
    """
    return [
        *_of_models(tables.comparison),
        *_of(tables.shares, schemas.SHARES, "operator:{operator}"),
        *_of(tables.modules, schemas.MODULES, "module:{module_path}"),
        *_of(tables.in_context, schemas.IN_CONTEXT, "tuple:{tuple_id}"),
        *_of(tables.launches, schemas.LAUNCHES, MODEL, "{launch_mode}"),
        *_of(requests, schemas.REQUESTS, MODEL),
        *_of(sweeps, schemas.SWEEPS, "{sweep}{point}{target_point}", "sweep"),
    ]


def comparison_rows(costs: Iterable[Row]) -> list[dict[str, Any]]:
    """The rows of `schemas.COMPARISON`: what most people look at, of `schemas.MODEL_COSTS`."""
    names = schemas.COMPARISON.names[:-1]
    return [
        {name: row[name] for name in names} | {"trust": str(trust_in_all(row))} for row in costs
    ]


def _of_models(comparison: Iterable[Row]) -> Iterator[Answer]:
    """The answers of rows of `schemas.MODEL_COSTS`, which `costs_of_models` gives back."""
    for row in comparison:
        yield from _numbers(row, schemas.MODEL_COSTS, MODEL, "estimate")
        of = _about(row)
        for name in _RUNS:
            for number, value in enumerate(row[name] or ()):
                yield _answer(of, f"run:{number}", "end_to_end", _place(name)[2], value)
        for flag, count in dict(row[_COUNTS] or {}).items():
            yield _answer(of, f"flag:{flag}", "estimate", "rows", count)


def _of(
    table: Iterable[Row], schema: pa.Schema, part: str, source: str = "estimate"
) -> Iterator[Answer]:
    """The answers of rows of another table. `part` and `source` may name columns in braces."""
    for row in table:
        phase = row.get("phase", FORWARD)
        of_phase = "" if phase == FORWARD else f"@{phase}"
        where = f"{part.format_map(row)}{of_phase}"
        yield from _numbers(row, schema, where, source.format_map(row))


def measured_inputs(model: str, path: Path) -> dict[str, list[str]]:
    """Inputs of a model and its variants in the answers of a file -> the targets that they were
    measured on.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for row in records.read(path, schemas.ANSWERS, ["model", "target", "axes"]).to_pylist():
        inputs = json.loads(row["axes"]).get("inputs")
        if inputs and is_variant(row["model"], model):
            found[inputs].append(row["target"])
    return {inputs: list(dict.fromkeys(targets)) for inputs, targets in found.items()}


def costs_of_models(path: Path) -> list[dict[str, Any]]:
    """The rows of `schemas.MODEL_COSTS` behind the answers in a file."""
    answers = records.read(path, schemas.ANSWERS).to_pylist()
    found = grouped(((row["model"], row["target"]), row) for row in answers)
    return [
        _cost(model, target, rows)
        for (model, target), rows in found.items()
        if any((row["part"], row["source"], row["quantity"]) == _PLACES["tuples"] for row in rows)
    ]


def _cost(model: str, target: str, rows: Sequence[Row]) -> dict[str, Any]:
    at = {(row["part"], row["source"], row["quantity"]): row for row in rows}
    first = at[_PLACES["tuples"]]
    cost: dict[str, Any] = dict.fromkeys(schemas.MODEL_COSTS.names)
    cost |= {"model": model, "target": target}
    cost |= json.loads(first["conditions"]) | json.loads(first["axes"])
    for name, place in _PLACES.items():
        if place in at:
            cost |= _with_limits(name, at[place])
    for name, of in _REASONS.items():
        cost[name] = at[_PLACES[of]]["reason"] if _PLACES[of] in at else None
    for name, of in _FLAGS.items():
        cost[name] = at[_PLACES[of]]["flags"] if _PLACES[of] in at else None
    for name in _RUNS:
        quantity = _place(name)[2]
        cost[name] = [row["value"] for row in rows if row["quantity"] == quantity]
    counts = [(row["part"], row["value"]) for row in rows if row["part"].startswith("flag:")]
    cost[_COUNTS] = [(part.removeprefix("flag:"), int(count)) for part, count in counts]
    return cost


def _with_limits(name: str, row: Row) -> dict[str, Any]:
    """The columns of a number, in the types of the table."""
    kind = schemas.MODEL_COSTS.field(name).type
    value = row["value"]
    if value is not None and not pa.types.is_floating(kind):
        value = bool(value) if pa.types.is_boolean(kind) else int(value)
    _, low, high = quantity_of(name).names
    limits = {low: row["low"], high: row["high"]} if low in schemas.MODEL_COSTS.names else {}
    return {name: value, **limits}


def _numbers(row: Row, schema: pa.Schema, part: str, source: str) -> Iterator[Answer]:
    """The numbers of a row that are known, and those of which it says why they are not."""
    reasons = {
        of if of in schema.names else _INSTEAD[name]: name
        for name, of in _REASONS.items()
        if name in schema.names
    }
    lists = {of: name for name, of in _FLAGS.items() if name in row}
    about = _about(row)
    for field in schema:
        name, value = field.name, row.get(field.name)
        if name in _KEYS - lists.keys() or is_limit(name):
            continue
        if not _is_number(field.type) and name not in lists:
            continue
        names = row.get(lists.get(name, ""))
        why = row.get(reasons.get(name, ""))
        if value is None and names is None and why is None:
            continue
        of, whose, quantity = _place(name) if source == "estimate" else (MODEL, source, name)
        low, high = (row.get(each) for each in quantity_of(name).names[1:])
        yield _answer(
            about,
            part if of == MODEL else of,
            whose,
            quantity,
            len(value) if isinstance(value, list) else value,
            low,
            high,
            reason=why,
            flags=names,
        )


def _about(row: Row) -> Answer:
    """What the answers of a row have in common."""
    return {
        "model": row["model"],
        "target": row["target"],
        "conditions": json.dumps({name: row[name] for name in _CONDITIONS if name in row}),
        "axes": json.dumps({name: row[name] for name in _AXES if name in row}),
        "calls": row.get("calls"),
    }


def _answer(
    about: Answer,
    part: str,
    source: str,
    quantity: str,
    value: float | None,
    low: float | None = None,
    high: float | None = None,
    reason: str | None = None,
    flags: Sequence[str] | None = None,
) -> Answer:
    return {
        **about,
        "part": part,
        "source": source,
        "quantity": quantity,
        "value": None if value is None else float(value),
        "low": low,
        "high": high,
        "reason": reason,
        "flags": flags,
    }


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)


def _place(name: str) -> _Place:
    """Where a column of a table is in the answer table."""
    source = next((each for each in _SOURCES if name.startswith(f"{each}_")), "")
    quantity = name.removeprefix(f"{source}_")
    part = next((each for each in _PARTS if quantity.startswith(f"{each}_")), "")
    return part or MODEL, source or "estimate", quantity.removeprefix(f"{part}_")


_PLACES = {
    field.name: _place(field.name)
    for field in schemas.MODEL_COSTS
    if not is_limit(field.name) and (field.name in _FLAGS.values() or field.name not in _KEYS)
}
"""Column of `schemas.MODEL_COSTS` with a number -> where that is."""
