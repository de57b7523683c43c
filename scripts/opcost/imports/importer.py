"""Convert published records to a database of imported rows.

An imported row contains only values from its record: no interval, protocol version or driver, and
no condition except its source. It is therefore never added up with measured rows.
"""

import ast
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from opcost.errors import OpcostError
from opcost.files import check_output
from opcost.imports.layouts import LAYOUTS, Record, Shape, Undetermined, layout_of
from opcost.models.construction import without_initialisation
from opcost.rows import records, schemas
from opcost.rows.flags import IMPORTED
from opcost.tuples.calls import module_calls
from opcost.tuples.extraction import tuple_record
from opcost.tuples.tuple_record import TupleRecord


@dataclass
class Import:
    """The outcome of an import: rows by target, and skipped records by reason, with file and line
    of the first. `str` is the summary to print.
    """

    rows: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    first_skipped: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.rows.total() + self.skipped.total():>8} records"]
        lines += [f"{count:>8} rows of target {name}" for name, count in sorted(self.rows.items())]
        if self.skipped:
            lines.append(f"{self.skipped.total():>8} records skipped:")
        for reason, count in self.skipped.most_common():
            lines.append(f"{count:>8} {reason} ({self.first_skipped[reason]})")
        return "\n".join(lines)


def import_records(
    paths: Sequence[Path],
    output: Path,
    source: str,
    target: str | None = None,
    device_name: str | None = None,
) -> Import:
    """Write published records as a database.

    `source` is where they were published. `target` is the rows' target; by default it is composed
    of layout and device or file. `device_name` is the product name of the device if the files do
    not state it. Raises OpcostError for a file that does not exist or has an unknown layout.
    """
    check_output(output, paths)
    layouts = [layout_of(path) for path in paths]  # check all before reading any
    done = Import()
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for layout, path in zip(layouts, paths, strict=True):
        origin = {"imported": {"layout": layout, "source": source}}
        known = {
            "device_name": device_name,
            "conditions_json": json.dumps(origin, sort_keys=True),
            "flags": [IMPORTED],
            "status": "ok",
        }
        for record in LAYOUTS[layout](path):
            name = target or f"{layout}_{record.device}".replace(" ", "_")
            try:
                row = {**known, "target": name, **_columns(record)}
                if (key := (name, row["tuple_id"])) in rows:
                    raise Undetermined("its tuple has an earlier record on its target")
            except Undetermined as reason:
                done.skipped[str(reason)] += 1
                done.first_skipped.setdefault(str(reason), record.line)
                continue
            rows[key] = row
            done.rows[name] += 1
    table = pa.Table.from_pylist(list(rows.values()), schema=schemas.DATABASE)
    records.write_batches(output, schemas.DATABASE, table.to_batches())
    return done


def _columns(record: Record) -> dict[str, Any]:
    """The columns of a record's row. Raises Undetermined."""
    columns = {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in record.columns.items()
    }
    if not columns["time_s"] or columns["time_s"] < 0:
        raise Undetermined("its time is not a positive number")
    if columns.get("energy_j") is None:
        columns.setdefault("energy_reason", "not published")
    found = tuple_of(*record.module())
    return {**records.operator_columns(found), "parameters": [*found.parameters], **columns}


@cache
def tuple_of(text: str, *shapes: Shape) -> TupleRecord:
    """The tuple of the only operator that a module executes on contiguous float32 tensors.

    The module keeps its initial mode, usually training. Raises Undetermined if it executes no
    operator or several, or cannot run.
    """
    try:
        with without_initialisation():
            module = module_of(text)
        name = type(module).__name__
        executed = module_calls(module, [torch.empty(shape) for shape in shapes], name)
    except (OpcostError, RuntimeError, ValueError, TypeError) as error:
        raise Undetermined(f"it cannot run: {error}") from error
    calls = [call for call in executed.calls if call.launches_kernel]
    if len(calls) != 1:
        names = ", ".join(call.operator_tuple.name for call in calls)
        raise Undetermined(f"{name} executes {len(calls)} operators, not one ({names})")
    return tuple_record(calls[0])


def module_of(text: str) -> nn.Module:
    """A module of torch.nn from its text, such as `Linear(in_features=4, out_features=2)`, or of a
    function in `_FUNCTIONS`.

    Attributes that the text omits have their defaults, as in torchvision's models, except for
    Hardswish. Only literals in the text are evaluated. Raises Undetermined.
    """
    if text in _FUNCTIONS:
        return _Function(_FUNCTIONS[text])
    name = text.partition("(")[0]
    if name == "Hardswish":
        raise Undetermined(f"the text of {name} does not say whether it works in place")
    kind = NonDynamicallyQuantizableLinear if name == _IN_ATTENTION else getattr(nn, name, None)
    try:
        call = ast.parse(text, mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(kind, type)):
            raise TypeError(name)
        if not issubclass(kind, nn.Module):
            raise TypeError(name)
        arguments = [ast.literal_eval(argument) for argument in call.args]
        named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        return kind(*arguments, **named)
    except (SyntaxError, ValueError, TypeError) as error:
        raise Undetermined(f"{name} is not the text of a module of torch.nn") from error


_IN_ATTENTION = NonDynamicallyQuantizableLinear.__name__
_FUNCTIONS = {name: getattr(torch, name) for name in ("add", "mul", "pow", "div", "bmm")}


class _Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.function(*tensors)
