"""How soon, how repeatably and how honestly is a function timed? Beside torch.utils.benchmark.

Twelve functions of about 1 us to 1 s, on one thread, each timed in ten fresh processes by
`opcost.time`, `blocked_autorange`, `adaptive_autorange` and a plain loop of a second, in another
order in each process, all on one set of arguments (warm). Timers of PyTorch get the interval of the
median between order statistics, of their blocks; a loop has none. An interval holds if it contains
the truth, of three kinds: by the clock, the median over all methods' longer runs in further
processes, which contains the time for which other programs have the core; by processor time, which
does not, the median over plain loops of what Linux counts for their thread; and the median over the
method's own longer runs.

`opcost.compare` and two Timers then compare a loop of Python with itself, and with one of 3 % more
rounds.

    PYTHONPATH=scripts python -m tests.benchmarks.function_timing
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial

import opcost
import torch
from opcost import statistics as intervals
from torch.utils.benchmark import Timer

METHODS = {
    "opcost.time": 1,
    "blocked_autorange": 3,
    "adaptive_autorange": 3,
    "plain loop": 6,
}
"""Method -> lines that a user types for a time of torch.mm(a, b), besides imports."""


def functions():
    """Name -> function and arguments."""
    torch.manual_seed(0)
    randn = torch.randn
    return {
        "add 1": (torch.add, randn(1), 1),
        "relu 1e4": (torch.relu, randn(10_000)),
        "softmax 64x64": (partial(torch.softmax, dim=-1), randn(64, 64)),
        "mm 64": (torch.mm, randn(64, 64), randn(64, 64)),
        "loop 5e3": (loop, 5_000),
        "mm 256": (torch.mm, randn(256, 256), randn(256, 256)),
        "conv2d 64x28x28": (
            partial(torch.conv2d, padding=1),
            randn(1, 64, 28, 28),
            randn(64, 64, 3, 3),
        ),
        "layer_norm 1e6": (partial(torch.layer_norm, normalized_shape=(1000,)), randn(1000, 1000)),
        "mm 1024": (torch.mm, randn(1024, 1024), randn(1024, 1024)),
        "sort 1e6": (torch.sort, randn(1_000_000)),
        "svd 300": (torch.linalg.svd, randn(300, 300)),
        "mm 3072": (torch.mm, randn(3072, 3072), randn(3072, 3072)),
    }


def loop(rounds):
    for _ in range(rounds):
        pass


def timed(method, function, args, budget_s):
    """Value, limits, seconds needed for all that the call does, processor seconds of a loop."""
    started_s, processor_s = time.perf_counter(), time.thread_time()
    if method == "opcost.time":
        found = opcost.time(function, *args, cache="warm", max_time_s=budget_s, energy=False).time
    elif method == "plain loop":
        calls, found = 0, None
        while (elapsed_s := time.perf_counter() - started_s) < budget_s:
            function(*args)
            calls += 1
        processor_s = (time.thread_time() - processor_s) / calls
        found = intervals.Estimate(elapsed_s / calls, None, None)
    else:
        timer = Timer("function(*args)", globals={"function": function, "args": args})
        options = {"min_run_time": 0.2 * budget_s}
        if method == "adaptive_autorange":
            options = {"threshold": 0.01, "max_run_time": budget_s, "min_run_time": 0.01}
        found = intervals.median(getattr(timer, method)(**options).times)
    return found.value, found.low, found.high, time.perf_counter() - started_s, processor_s


def compared(method, first, second):
    """Whether they differ, the first's arguments being the rounds of a loop."""
    if method == "opcost.compare":
        one, other = (lambda: loop(first)), (lambda: loop(second))
        return opcost.compare(one, other, energy=False).verdict != "not distinguishable"
    one, other = (timed(method, loop, (each,), 0.5) for each in (first, second))
    return not intervals.overlap(*(intervals.Estimate(*each[:3]) for each in (one, other)))


def in_process(number, budget_s):
    """All figures of one process, printed as JSON."""
    torch.set_num_threads(1)
    found = {}
    names = list(METHODS)
    order = names[number % len(names) :] + names[: number % len(names)]
    for name, (function, *args) in functions().items():
        function(*args)
        found[name] = {method: timed(method, function, args, budget_s) for method in order}
    found["compared"] = {
        method: [compared(method, 5_000, 5_000), compared(method, 5_000, 5_150)]
        for method in ("opcost.compare", "adaptive_autorange")
    }
    print(json.dumps(found))


def processes(count, budget_s):
    command = [sys.executable, "-m", "tests.benchmarks.function_timing", "--budget", str(budget_s)]
    return [
        json.loads(subprocess.check_output([*command, "--process", str(number)]))
        for number in range(count)
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--process", type=int)
    parser.add_argument("--budget", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.process is not None:
        return in_process(arguments.process, arguments.budget)
    loads = [os.getloadavg()[0]]
    long, short = processes(2, 2.0), processes(arguments.processes, arguments.budget)
    loads.append(os.getloadavg()[0])
    print(f"{os.cpu_count()} cores, load {loads[0]:.1f} before and {loads[1]:.1f} after")
    print(
        "| function | clock | processor | method | seconds | spread | ± | by clock | by processor |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    total = {method: [] for method in METHODS}
    for name in functions():
        truth = statistics.median(each[0] for run in long for each in run[name].values())
        own = statistics.median(run[name]["plain loop"][4] for run in (*long, *short))
        for method in METHODS:
            runs = [run[name][method] for run in short]
            values = [run[0] for run in runs]
            spread = statistics.stdev(values) / statistics.mean(values)
            known = [run for run in runs if run[1] is not None]
            halves = [(run[2] - run[1]) / 2 / run[0] for run in known]
            alike = statistics.median(run[name][method][0] for run in long)
            truths = (truth, own, alike)
            holds = [sum(run[1] <= each <= run[2] for run in known) for each in truths]
            seconds = statistics.median(run[3] for run in runs)
            total[method].append((seconds, spread, *holds, len(known)))
            half = f"{statistics.median(halves):.1%}" if known else "-"
            print(
                f"| {name} | {truth:.3g} s | {own:.3g} s | {method} | {seconds:.2f} "
                f"| {spread:.1%} | {half} | {' | '.join(map(str, holds))} | {len(known)} |"
            )
    for method, rows in total.items():
        seconds, spreads, *holds, known = zip(*rows, strict=True)
        print(
            f"{method}: median {statistics.median(seconds):.2f} s, median spread "
            f"{statistics.median(spreads):.1%}, largest {max(spreads):.0%}, "
            f"of {sum(known)} intervals {' and '.join(str(sum(each)) for each in holds)} hold, "
            f"{METHODS[method]} lines"
        )
    for method in ("opcost.compare", "adaptive_autorange"):
        same, other = zip(*(run["compared"][method] for run in short), strict=True)
        print(f"{method}: differs from itself {sum(same)}, from 3 % more {sum(other)} times")


if __name__ == "__main__":
    main()
