"""Three questions about measuring an operator's time, answered from data on this CPU.

    PYTHONPATH=scripts python -m tests.benchmarks.seeds_questions average [DATABASE ...]
    PYTHONPATH=scripts python -m tests.benchmarks.seeds_questions length
    PYTHONPATH=scripts python -m tests.benchmarks.seeds_questions inputs

`average`: the median or the mean without what lies beyond three standard deviations?
`length`: how short may a measurement be?
`inputs`: does it matter whether inputs are fresh or one is used again?

Each prints a table and draws docs/explanation/seeds_questions_QUESTION.svg.
"""

import argparse
import itertools
import random
import statistics
import time
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from opcost.devices.target_device import open_device
from opcost.measuring import timing
from opcost.measuring.operands import Rotation, operand_sets
from opcost.measuring.workload import CACHES_PER_FOOTPRINT, OperatorWorkload
from opcost.models.construction import inference_conditions
from opcost.rows import records, schemas
from opcost.target import Target
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec

CONV = OperatorTuple(
    "aten.conv2d.default",
    (
        ("input", TensorSpec((1, 64, 56, 56), "float32")),
        ("padding", (1, 1)),
        ("weight", TensorSpec((64, 64, 3, 3), "float32")),
    ),
)
LINEAR = OperatorTuple(
    "aten.linear.default",
    (("input", TensorSpec((1, 2048), "float32")), ("weight", TensorSpec((1000, 2048), "float32"))),
)
RELU = OperatorTuple("aten.relu.default", (("self", TensorSpec((1, 64, 56, 56), "float32")),))
SOFTMAX = OperatorTuple(
    "aten.softmax.int", (("dim", -1), ("self", TensorSpec((12, 197, 197), "float32")))
)
OPERATORS = {"conv2d": CONV, "linear": LINEAR, "relu": RELU, "softmax": SOFTMAX}
BATCH_S = 0.01


def trimmed_mean(values):
    """The mean without the values that lie more than three standard deviations from it."""
    values = np.asarray(values)
    near = np.abs(values - values.mean()) <= 3 * values.std()
    return values[near].mean()


def average(paths):
    """Compare the two averages over every measurement of some databases."""
    rows = records.read_all([Path(path) for path in paths], schemas.OPERATOR).to_pylist()
    kinds = {"all batches": [], "undisturbed batches": []}
    for row in rows:
        if row["status"] != "ok":
            continue
        counted = list(itertools.compress(row["batch_time_s"], row["batch_undisturbed"]))
        for kind, batches in (
            ("all batches", row["batch_time_s"]),
            ("undisturbed batches", counted),
        ):
            if len(batches) >= 10:
                centre = statistics.median(batches)
                kinds[kind].append((trimmed_mean(batches) / centre - 1, row["description"]))
    print("| batches | measurements | median of (trimmed mean / median - 1) | within 1 % | worst |")
    print("|---|---|---|---|---|")
    figure, axes = plt.subplots(figsize=(7, 3.5))
    for kind, found in kinds.items():
        shifts = [shift for shift, _ in found]
        worst, description = max(found, key=lambda pair: abs(pair[0]))
        print(
            f"| {kind} | {len(found)} | {statistics.median(shifts):+.2%} "
            f"| {sum(abs(shift) <= 0.01 for shift in shifts) / len(shifts):.0%} "
            f"| {worst:+.1%}, {description} |"
        )
        axes.plot(
            np.sort(np.abs(shifts)) * 100,
            np.linspace(0, 1, len(shifts)),
            label=kind,
            drawstyle="steps",
        )
    axes.set(xscale="log", xlabel="|trimmed mean / median - 1| (%)", ylabel="share of measurements")
    axes.legend()
    save(figure, "average")


def length(seconds):
    """How far a shorter measurement is from one of `seconds`, operator by operator."""
    device = open_device(Target("cpu", 1, False))
    watch = device.watch(None)
    windows_s = [window_s for window_s in (0.1, 0.3, 1, 3, 10, 30) if window_s <= seconds / 3]
    print(f"Error (95th percentile) of a window against all {seconds:g} s; undisturbed | all\n")
    print("| operator | " + " | ".join(f"{window_s:g} s" for window_s in windows_s) + " |")
    print("|---|" + "---|" * len(windows_s))
    figure, axes = plt.subplots(figsize=(7, 3.5))
    for index, (name, operator_tuple) in enumerate(OPERATORS.items()):
        times, values, undisturbed = record(operator_tuple, device, watch, seconds)
        cells = []
        errors = {"undisturbed": [], "all": []}
        for window_s in windows_s:
            for kind, counted in (("undisturbed", undisturbed), ("all", np.ones_like(undisturbed))):
                errors[kind].append(window_error(times, values, counted, window_s))
            cells.append(" / ".join(f"{found[-1]:.1%}" for found in errors.values()))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        for (kind, found), style in zip(errors.items(), ("-", ":"), strict=True):
            axes.plot(
                windows_s, np.array(found) * 100, style, color=f"C{index}", label=f"{name}, {kind}"
            )
    axes.set(xscale="log", yscale="log", xlabel="window (s)", ylabel="error, 95th percentile (%)")
    axes.legend(fontsize=7, ncols=2)
    save(figure, "length")


def record(operator_tuple, device, watch, seconds):
    """When each batch ended, what an iteration took in it, and whether it was undisturbed."""
    footprint = CACHES_PER_FOOTPRINT * (device.last_level_cache_bytes or 2**26)
    with inference_conditions():
        workload = OperatorWorkload(operand_sets(operator_tuple, device, Rotation(footprint), 0))
        iterations = timing.calibrate(timing.timer_of(workload, device, BATCH_S), BATCH_S)
        timing.warm_up(workload, device, iterations, 0.5)
        watch.look()
        found = []
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            value = device.time(partial(workload.run, iterations)).device_s / iterations
            found.append((time.monotonic() - start, value, watch.look()))
    times, values, undisturbed = map(np.array, zip(*found, strict=True))
    return times, values, undisturbed


def window_error(times, values, counted, window_s):
    """95th percentile of |median of a window / median of all - 1| over windows in a row."""
    counted = counted.astype(bool)
    whole = np.median(values[counted])
    errors = []
    for begin in np.arange(0, times[-1] - window_s, window_s):
        inside = counted & (times >= begin) & (times < begin + window_s)
        if inside.sum() >= 5:
            errors.append(abs(np.median(values[inside]) / whole - 1))
    return np.quantile(errors, 0.95)


def inputs(rounds):
    """Time the same operator on one input, on copies, on different ones, and on new ones."""
    device = open_device(Target("cpu", 1, False))
    watch = device.watch(None)
    kinds = ("one, reused", "copies in turn", "different, in turn", "drawn before each call")
    print("Relative to one reused input; median of undisturbed batches\n")
    print("| operator | time, one input reused | " + " | ".join(kinds[1:]) + " |")
    print("|---|" + "---|" * len(kinds))
    figure, axes = plt.subplots(figsize=(7, 3.5))
    generator = random.Random(0)
    for index, (name, operator_tuple) in enumerate(OPERATORS.items()):
        with inference_conditions():
            measure = input_measurements(operator_tuple, device)
            batches = {kind: [] for kind in kinds}
            for _ in range(rounds):
                for kind in generator.sample(kinds, len(kinds)):
                    measure[kind]()
                    watch.look()
                    value = measure[kind]()
                    if watch.look():
                        batches[kind].append(value)
        centres = [statistics.median(batches[kind]) for kind in kinds]
        cells = [f"{centre / centres[0] - 1:+.1%}" for centre in centres[1:]]
        print(f"| {name} | {centres[0] * 1e6:.1f} us | " + " | ".join(cells) + " |", flush=True)
        axes.bar(np.arange(4) + index / 5, np.array(centres) / centres[0], width=0.2, label=name)
    axes.set_xticks(np.arange(4) + 0.3, kinds)
    axes.set_ylabel("time, relative to one reused input")
    axes.legend()
    save(figure, "inputs")


def input_measurements(operator_tuple, device):
    """For each kind of input, a function that times one batch: seconds per call."""
    footprint = CACHES_PER_FOOTPRINT * (device.last_level_cache_bytes or 2**26)
    activation = "self" if "self" in dict(operator_tuple.arguments) else "input"
    one = operand_sets(operator_tuple, device, Rotation(0), 0)
    copies = operand_sets(operator_tuple, device, Rotation(footprint, {activation}), 0)
    different = operand_sets(operator_tuple, device, Rotation(footprint, {activation}), 0)
    torch.manual_seed(0)
    drawn = [argument_of(call, activation) for call in different.calls]
    for tensor in drawn:
        tensor.normal_()
    workloads = [OperatorWorkload(sets) for sets in (one, copies, different)]
    iterations = timing.calibrate(timing.timer_of(workloads[1], device, BATCH_S), BATCH_S)

    def in_turn(workload):
        return device.time(partial(workload.run, iterations)).device_s / iterations

    def drawn_before():
        seconds = 0.0
        for _ in range(iterations):
            argument_of(one.calls[0], activation).normal_()
            seconds += device.time(one.calls[0]).device_s
        return seconds / iterations

    names = ("one, reused", "copies in turn", "different, in turn")
    timed = {name: partial(in_turn, load) for name, load in zip(names, workloads, strict=True)}
    return {**timed, "drawn before each call": drawn_before}


def argument_of(call, name):
    """The argument of that name."""
    names = [argument.name for argument in call.operator._schema.arguments]
    return call.args[names.index(name)]


def save(figure, question):
    """Write the figure beside the documentation."""
    figure.tight_layout()
    path = Path("docs/explanation") / f"seeds_questions_{question}.svg"
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("average")
    command.add_argument("databases", nargs="*", default=["results/database.parquet"])
    command.set_defaults(run=lambda arguments: average(arguments.databases))
    command = commands.add_parser("length")
    command.add_argument("--seconds", type=float, default=120)
    command.set_defaults(run=lambda arguments: length(arguments.seconds))
    command = commands.add_parser("inputs")
    command.add_argument("--rounds", type=int, default=40)
    command.set_defaults(run=lambda arguments: inputs(arguments.rounds))
    arguments = parser.parse_args()
    arguments.run(arguments)
