"""How soon is a time known to 1 %, and does its interval hold? Beside torch.utils.benchmark.

Three operators, each timed in ten fresh processes by three procedures in turn: opcost's protocol,
`blocked_autorange` (its minimum run time doubled until the interval is narrow enough) and
`adaptive_autorange(threshold=0.01)`, all on one set of arguments; and by opcost as it measures by
default, where they rotate through memory. All get the same interval: that of the median between
order statistics, at 95 %. It holds if it contains the median of all processes' medians. A study of
opcost widens it by how badly measurements reproduce: here, by what pairs of processes say that
measured the other two operators.

    PYTHONPATH=scripts python -m tests.benchmarks.time_to_certainty
"""

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import time

import torch
from opcost.devices.device import open_device
from opcost.measuring import timing
from opcost.measuring.operands import Rotation, operand_sets
from opcost.measuring.workload import operator_workload
from opcost.models.conditions import inference_conditions
from opcost.noise import Runs, block_error, combined, pooled
from opcost.statistics import Estimate, median
from opcost.target import Target
from opcost.tuples.description import describe_tensor
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.tuple_record import TupleRecord
from opcost.tuples.work import minimal_bytes
from torch.utils.benchmark import Timer

from tests.quick_measurement import default_measurement

USUAL_SD = 0.02
OPERATORS = {
    "conv2d 1x64x28x28, 64x64x3x3": OperatorTuple(
        "aten.conv2d.default",
        (
            ("input", TensorSpec((1, 64, 28, 28), "float32")),
            ("padding", (1, 1)),
            ("weight", TensorSpec((64, 64, 3, 3), "float32")),
        ),
    ),
    "linear 8x1024, 1024x1024": OperatorTuple(
        "aten.linear.default",
        (
            ("input", TensorSpec((8, 1024), "float32")),
            ("weight", TensorSpec((1024, 1024), "float32")),
        ),
    ),
    "relu 1x64x56x56": OperatorTuple(
        "aten.relu.default", (("self", TensorSpec((1, 64, 56, 56), "float32")),)
    ),
}
CACHE_STATES = {"opcost, state warm": "warm", "opcost, state model": "model"}
METHODS = (*CACHE_STATES, "blocked_autorange", "adaptive_autorange")
RELATIVE_CI = 0.01
MAX_S = 10.0
SETTINGS = dataclasses.replace(
    default_measurement(),
    time_relative_ci=RELATIVE_CI,
    min_time_s=0.0,
    max_time_s=MAX_S,
)


def by_opcost(operator_tuple, cache_state, device, watch):
    """The median by opcost's protocol."""
    once = operand_sets(operator_tuple, device, Rotation(0), 0)
    outputs = (describe_tensor(once.calls[0]()),)
    moved = minimal_bytes(operator_tuple, outputs)
    record = TupleRecord(operator_tuple, outputs, True, None, moved, parameters=("weight",))
    workload = operator_workload(record, device, cache_state, SETTINGS.seed)
    timer = timing.timer_of(workload, device, SETTINGS.batch_s)
    iterations = timing.calibrate(timer, SETTINGS.batch_s)
    timing.warm_up(workload, device, iterations, SETTINGS.warm_up_s)
    return timing.measure_time(timer, watch, iterations, SETTINGS).estimate


def by_torch(operator_tuple, method, device):
    """The median by torch.utils.benchmark."""
    operands = operand_sets(operator_tuple, device, Rotation(0), 0)
    timer = Timer("call()", globals={"call": operands.calls[0]}, num_threads=1)
    if method == "adaptive_autorange":
        return median(timer.adaptive_autorange(threshold=RELATIVE_CI, max_run_time=MAX_S).times)
    run_s = 0.2
    while True:
        estimate = median(timer.blocked_autorange(min_run_time=run_s).times)
        half_width = estimate.relative_half_width
        if (half_width is not None and half_width <= RELATIVE_CI) or run_s >= MAX_S:
            return estimate
        run_s *= 2


def child(method, baseline_s):
    """One line for each operator: its estimate and the seconds that it took."""
    device = open_device(Target("cpu", 1, False))
    watch = device.watch(baseline_s)
    for name, operator_tuple in OPERATORS.items():
        with inference_conditions():
            start = time.perf_counter()
            if method in CACHE_STATES:
                estimate = by_opcost(operator_tuple, CACHE_STATES[method], device, watch)
            else:
                estimate = by_torch(operator_tuple, method, device)
            seconds = time.perf_counter() - start
        print(json.dumps([name, estimate.value, estimate.low, estimate.high, seconds]))


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--child", nargs=2, metavar=("METHOD", "BASELINE_S"))
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child[0], float(arguments.child[1]))
        return
    device = open_device(Target("cpu", 1, False))
    baseline_s = str(device.baseline_s())
    found = {(method, name): [] for method in METHODS for name in OPERATORS}
    for _ in range(arguments.processes):
        for method in METHODS:
            command = [sys.executable, __file__, "--child", method, baseline_s]
            for line in subprocess.run(
                command, check=True, capture_output=True, text=True
            ).stdout.splitlines():
                name, *result = json.loads(line)
                found[method, name].append(result)
    print(f"{device.model_name}, torch {torch.__version__}, {arguments.processes} processes each\n")
    print(
        "| operator | procedure | seconds (worst) | half-width | between processes | held "
        "| held, widened |"
    )
    print("|---" * 7 + "|")
    for name in OPERATORS:
        for method in METHODS:
            estimates = [Estimate(*row[:3]) for row in found[method, name]]
            seconds = [row[3] for row in found[method, name]]
            values = [estimate.value for estimate in estimates]
            # Fewer than six values carry no interval.
            widths = [w for e in estimates if (w := e.relative_half_width) is not None]
            width = f"{statistics.median(widths):.1%}" if widths else "none"
            others = [found[method, other] for other in OPERATORS if other != name]
            pairs = [pair for rows in others for pair in pairs_of(rows)]
            variation = pooled([Runs(pair, (0.0, 0.0)) for pair in pairs], USUAL_SD)
            widened = [
                combined(Runs([each.value], [block_error(each)]), variation) for each in estimates
            ]
            print(
                f"| {name} | {method} | {statistics.median(seconds):.2f} ({max(seconds):.2f}) "
                f"| {width} | {statistics.stdev(values) / statistics.median(values):.1%} (SD) "
                f"| {held(estimates)} of {len(values)} "
                f"| {held(widened) if method in CACHE_STATES else '-'} |",
                flush=True,
            )


def pairs_of(rows):
    """What one process and the next one found."""
    return [(first[0], second[0]) for first, second in zip(rows[::2], rows[1::2], strict=False)]


def held(estimates):
    """How many intervals contain the median of all values."""
    middle = statistics.median(estimate.value for estimate in estimates)
    return sum(e.low is not None and e.low <= middle <= e.high for e in estimates)


if __name__ == "__main__":
    main()
