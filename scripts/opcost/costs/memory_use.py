"""The memory of an iteration by module, and the largest batch that a memory holds.

Counted are the tensors of the recorded calls. A device adds kernels' workspaces, its context and
what its allocator rounds up.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opcost.errors import OpcostError
from opcost.memory import gib
from opcost.models.definition import input_bytes
from opcost.text import percent, scaled, table_of, wrapped
from opcost.tuples.model_tuples import ModelTuples

_MOST_BATCHES, _MOST_TIMES = 2**20, 16
_LIMITS = "Workspaces of kernels, the context of a device and its allocator's rounding come on top."


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of a model's iteration: weights, inputs, state of an optimizer or cached keys and
    values, and activations (all that calls make) at their peak, in the call of number `peak_call`.

    `modules` has a row for each module that has weights, or whose calls make memory: its path,
    `weight_bytes`, `at_peak_bytes` that it made of the activations at the model's peak, and
    `peak_bytes`, the most activations that live at once while it runs, whoever made them.
    """

    model: ModelTuples
    weight_bytes: int
    state_bytes: int
    input_bytes: int
    activation_peak_bytes: int
    peak_call: int
    modules: list[dict[str, Any]]

    def to_document(self) -> dict[str, Any]:
        """As JSON data."""
        names = ("weight_bytes", "state_bytes", "input_bytes", "activation_peak_bytes")
        sizes = {name: getattr(self, name) for name in (*names, "total_bytes", "peak_call")}
        return {"model": self.model.model, **sizes, "modules": self.modules}

    @property
    def total_bytes(self) -> int:
        """All of them at the peak."""
        return self.weight_bytes + self.state_bytes + self.input_bytes + self.activation_peak_bytes


def memory_use(model: ModelTuples) -> MemoryUse:
    """The memory of an iteration. Raises OpcostError where it is unknown."""
    memory, definition = model.memory, model.definition
    if memory is None or definition is None:
        raise OpcostError(
            f"the memory of {model.model} is unknown: its calls were recorded by an older opcost; "
            "extract it again"
        )
    live, paths = memory.live_bytes, [call.module_path for call in model.calls]
    peak_call = live.index(max(live))
    made, peaks = Counter[str](), dict[str, int]()
    for first, last, size in memory.lifetimes:
        if first <= peak_call <= last:
            made[paths[first]] += size
    for path, size in zip(paths, live, strict=False):
        peaks[path] = max(size, peaks.get(path, 0))
    weights = {path: size for path, size in memory.weight_bytes.items() if size}
    modules = [
        {
            "module": path,
            "weight_bytes": weights.get(path, 0),
            "at_peak_bytes": made[path],
            "peak_bytes": peaks.get(path, 0),
        }
        for path in dict.fromkeys([*paths, *weights])
    ]
    return MemoryUse(
        model,
        sum(weights.values()),
        memory.state_bytes,
        input_bytes(definition.stating(model.dtypes)),
        memory.peak_bytes,
        peak_call,
        sorted(modules, key=lambda row: -(row["weight_bytes"] + row["at_peak_bytes"])),
    )


def memory_as_text(use: MemoryUse, top: int) -> str:
    """The total, its parts, and the `top` modules that hold most of it."""
    state = "optimizer state" if use.model.trains else "cached keys and values"
    where = ""
    if use.model.calls:
        module = use.model.calls[use.peak_call].module_path or "the model itself"
        where = f" (in {module}, call {use.peak_call + 1} of {len(use.model.calls)})"
    parts = [
        f"weights {_shown(use.weight_bytes)}",
        *([f"{state} {_shown(use.state_bytes)}"] if use.state_bytes else []),
        f"inputs {_shown(use.input_bytes)}",
        f"activations {_shown(use.activation_peak_bytes)} at their peak{where}",
    ]
    shown, others = use.modules[:top], use.modules[top:]
    kept = use.input_bytes + use.state_bytes
    rows = [("(inputs, state)", {"weight_bytes": kept, "at_peak_bytes": 0, "peak_bytes": 0})]
    rows += [(row["module"] or "(the model itself)", row) for row in shown]
    if others:
        summed = {
            name: sum(row[name] for row in others) for name in ("weight_bytes", "at_peak_bytes")
        }
        largest = max(row["peak_bytes"] for row in others)
        rows.append((f"{len(others)} others", summed | {"peak_bytes": largest}))
    cells = [
        {
            "memory by module": name,
            "kept": _shown(row["weight_bytes"]),
            "at the peak": _shown(row["at_peak_bytes"]),
            "share": percent((row["weight_bytes"] + row["at_peak_bytes"]) / use.total_bytes, 1),
            "peak while it runs": _shown(row["peak_bytes"]),
        }
        for name, row in rows
    ]
    total = f"Memory: {_shown(use.total_bytes)}: {', '.join(parts)}. {_LIMITS}"
    return "\n".join([*wrapped([total]), "", *table_of(cells)])


def fit(use_of: Callable[[int], MemoryUse], budget_bytes: int) -> tuple[int | None, str]:
    """The largest batch size as in `largest_batch`, or None; and the answer to `--fit` as text."""
    try:
        batch, use = largest_batch(use_of, budget_bytes)
    except OpcostError as error:
        return None, "\n".join(wrapped([f"No largest batch: {error}"]))
    return batch, _fit_as_text(budget_bytes, batch, use)


def _fit_as_text(budget_bytes: int, batch: int, use: MemoryUse) -> str:
    taken = f"{batch}, which takes {_budget(use.total_bytes)}"
    return "\n".join(wrapped([f"Largest batch within {_budget(budget_bytes)}: {taken}. {_LIMITS}"]))


def largest_batch(use_of: Callable[[int], MemoryUse], budget_bytes: int) -> tuple[int, MemoryUse]:
    """The largest batch size whose iteration fits into so many bytes, and its memory.

    `use_of` records the calls of a batch size. Raises OpcostError if one sample does not fit, and
    if a million do.
    """
    fits, found = 2, use_of(2)  # some models cannot train on one sample
    if found.total_bytes > budget_bytes:
        fits, found = 1, use_of(1)
    name, needed = found.model.model, found.total_bytes
    if needed > budget_bytes:
        raise OpcostError(
            f"--fit {_budget(budget_bytes)}: one sample of {name} needs {_budget(needed)}: give "
            "more memory, or smaller inputs"
        )
    too_many, step = 0, fits
    while not too_many:
        if fits >= _MOST_BATCHES:
            raise OpcostError(
                f"--fit {_budget(budget_bytes)}: more than {_MOST_BATCHES:,} samples of {name} fit"
            )
        tried = use_of(fits + step)
        if tried.total_bytes > budget_bytes:
            too_many, beyond = fits + step, tried
        else:
            each_bytes = (tried.total_bytes - found.total_bytes) / step
            fits, found = fits + step, tried
            left = (budget_bytes - found.total_bytes) / each_bytes if each_bytes else math.inf
            step = int(min(left + 1, _MOST_TIMES * fits))
    halves = itertools.cycle([False, True])  # every other guess, where memory is not linear
    while too_many - fits > 1:
        share = (budget_bytes - found.total_bytes) / (beyond.total_bytes - found.total_bytes)
        guess = fits + int((0.5 if next(halves) else share) * (too_many - fits))
        tried = use_of(guess := min(max(guess, fits + 1), too_many - 1))
        if tried.total_bytes > budget_bytes:
            too_many, beyond = guess, tried
        else:
            fits, found = guess, tried
    return fits, found


def _budget(size: int) -> str:
    return gib(size) if size >= 2**30 else _shown(size)


def _shown(size: int) -> str:
    return scaled(size, "B", 3)
