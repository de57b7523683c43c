"""What an operator costs inside a model, and what it costs in each cache state. On this CPU.

A model's operator calls are recorded and run again in a row, as straight-line code, with the clock
read between them. That gives each operator's time in its real context; the rest of the whole
model's time lies between operators: Python and the dispatch of modules.

    PYTHONPATH=scripts python -m tests.benchmarks.in_context [MODEL ...]
"""

import argparse
import itertools
import math
import statistics
import time
from collections import defaultdict

import torch
from opcost.devices.processor import CpuDevice
from opcost.devices.target_device import open_device
from opcost.measuring.workload import footprint
from opcost.models import construction
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.study import Target
from opcost.tuples.description import describe
from opcost.tuples.extraction import extract_model_tuples
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.benchmarks.sum_and_whole import MODELS, STATES, OneBlock, in_a_fork, operator_seconds

VISITS = 30
PASSES_IN_A_ROW = 3


class Recorder(TorchDispatchMode):
    """Keeps every operator call with its real tensors."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.namespace != "prim":
            self.calls.append((func, args, kwargs or {}, result))
        return result


def straight_line(calls, inputs):
    """A function of the inputs that makes the calls in a row and returns the times between them.

    Each result is deleted after its last use, as in the model.
    """
    names, scope = {id(tensor): f"i{index}" for index, tensor in enumerate(inputs)}, {}
    scope["now"] = time.perf_counter_ns

    def name_of(value):
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(name_of, value)) + "]"
        if not isinstance(value, torch.Tensor) or id(value) not in names:
            name = f"c{len(scope)}"
            scope[name] = value
            if not isinstance(value, torch.Tensor):
                return name
            names[id(value)] = name
        return names[id(value)]

    lines, last_use = [], {}
    for index, (operator, args, kwargs, result) in enumerate(calls):
        scope[f"f{index}"] = operator
        given = [name_of(value) for value in args]
        given += [f"{name}={name_of(value)}" for name, value in kwargs.items()]
        results = []
        for tensor in tree_leaves(result):
            known = not isinstance(tensor, torch.Tensor) or id(tensor) in names
            results.append("_" if known else names.setdefault(id(tensor), f"v{len(names)}"))
        target = ", ".join(results) + ("," if isinstance(result, (list, tuple)) else "")
        lines.append(f"t{index} = now(); {target} = f{index}({', '.join(given)})")
        for tensor in [*tree_leaves((args, kwargs)), *tree_leaves(result)]:
            if isinstance(tensor, torch.Tensor) and names[id(tensor)].startswith("v"):
                last_use[names[id(tensor)]] = index
    for name, index in last_use.items():
        if index < len(calls) - 1:
            lines[index] += f"; del {name}"
    times = ", ".join(f"t{index}" for index in range(len(calls)))
    body = "\n    ".join([*lines, f"return [{times}, now()]"])
    arguments = ", ".join(f"i{index}" for index in range(len(inputs)))
    exec(f"def run({arguments}):\n    {body}", scope)
    return scope["run"]


class RotatingWeights:
    """A module whose parameters and buffers lie in other memory at each turn, itself unchanged."""

    def __init__(self, module, footprint_bytes):
        self._tensors = [*module.parameters(), *module.buffers()]
        held_bytes = sum(tensor.nbytes for tensor in self._tensors)
        count = max(1, min(256, math.ceil(footprint_bytes / held_bytes)))
        sets = [[tensor.detach().clone() for tensor in self._tensors] for _ in range(count)]
        self._sets = itertools.cycle(sets)

    def turn(self):
        """Let the weights be those of the next set."""
        for tensor, other in zip(self._tensors, next(self._sets), strict=True):
            tensor.data = other


def time_in_context(module, definition, device, watch, footprint_bytes):
    """Seconds of the whole model, and of each call in a row: medians of undisturbed passes."""
    inputs = construction.example_inputs(definition).args
    weights = RotatingWeights(module, footprint_bytes)
    with Recorder() as recorder:
        module(*inputs)
    run = straight_line(recorder.calls, inputs)
    ids = [describe(func, args, kwargs).tuple_id for func, args, kwargs, _ in recorder.calls]

    def undisturbed_passes(measure):
        """What one pass after another gave, without the first one after the sentinel."""
        found = []
        watch.look()
        for _ in range(1 + PASSES_IN_A_ROW):
            weights.turn()
            found.append(measure())
        return found[1:] if watch.look() else []

    wholes, passes = [], []
    for _ in range(VISITS):
        wholes += undisturbed_passes(lambda: device.time(lambda: module(*inputs)).device_s)
        passes += undisturbed_passes(lambda: run(*inputs))
    gaps = [[later - earlier for earlier, later in itertools.pairwise(times)] for times in passes]
    calls = [statistics.median(column) * 1e-9 for column in zip(*gaps, strict=True)]
    return statistics.median(wholes), list(zip(ids, calls, strict=True))


def main():
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    arguments = parser.parse_args()
    open_device(Target("cpu", 1, False))
    footprint_bytes = footprint(CpuDevice())
    device = OneBlock(int(footprint_bytes * 1.2) + 2**30)
    watch = device.watch(device.baseline_s())
    for name in arguments.models:
        definition = ModelDefinition(name=name, model=name, inputs=(InputSpec((1, 3, 224, 224)),))
        records = {
            record.operator_tuple.tuple_id: record
            for record in extract_model_tuples(definition).tuples
        }
        table = defaultdict(lambda: defaultdict(float))
        with construction.inference_conditions():
            torch.manual_seed(0)
            module = construction.build(definition)
            whole_s, calls = time_in_context(module, definition, device, watch, footprint_bytes)
            for tuple_id, value in calls:
                row = table[records[tuple_id].operator_tuple.name]
                row["calls"] += 1
                row["in context"] += value
            for record in records.values():
                if not record.launches_kernel:
                    continue
                operator_tuple = record.operator_tuple
                times = sum(tuple_id == operator_tuple.tuple_id for tuple_id, _ in calls)
                for state in STATES:
                    value, _ = in_a_fork(operator_seconds, record, device, watch, state)
                    table[operator_tuple.name][state] += times * value
        inside_s = sum(row["in context"] for row in table.values())
        between_us = (whole_s - inside_s) / len(calls) * 1e6
        print(
            f"\n{name}: whole {whole_s * 1e3:.2f} ms, operators in context "
            f"{inside_s * 1e3:.2f} ms, {between_us:.1f} us between two calls\n"
        )
        print("| operator | calls | in context | cold | model | warm |")
        print("|---|---|---|---|---|---|")
        for operator, row in sorted(table.items(), key=lambda item: -item[1]["in context"]):
            cells = " | ".join(f"{row[key] * 1e3:.3f} ms" for key in ("in context", *STATES))
            print(f"| {operator} | {row['calls']:.0f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
