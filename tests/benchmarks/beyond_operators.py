"""What calls take in models beyond the rows of their operators: a study's models, run again.

Each model is run whole, and as its operator calls in a row with the clock read between them. The
first table compares both with the rows of the study, and the rest that call overhead has to
explain with what the study estimates for it. The second one shows by how much short operators
(below 25 us) exceed their rows, by the data that moved since the last call of the same operator.
On this CPU, one thread.

    PYTHONPATH=scripts python -m tests.benchmarks.beyond_operators [--results FOLDER] [MODEL ...]
"""

import argparse
import math
import statistics
from collections import defaultdict
from pathlib import Path

import torch
from opcost.databases.database import read_database
from opcost.devices.processor import CpuDevice
from opcost.devices.target_device import open_device
from opcost.measuring.workload import footprint
from opcost.models import construction
from opcost.results_folder import extractions
from opcost.rows import records, schemas
from opcost.study import Target
from opcost.tuples.model_tuples import read_extractions

from tests.benchmarks.in_context import time_in_context
from tests.benchmarks.sum_and_whole import OneBlock, in_a_fork

SHORT_S = 25e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--search-path", type=Path, default=Path("config/models"))
    arguments = parser.parse_args()
    open_device(Target("cpu", 1, False))
    rows = {
        row["tuple_id"]: row["time_s"]
        for row in read_database(arguments.results / "database.parquet").to_pylist()
    }
    compared = {
        row["model"]: row
        for row in records.read(
            arguments.results / "comparison.parquet", schemas.COMPARISON
        ).to_pylist()
    }
    core_cache_bytes, excesses = CpuDevice().core_cache_bytes, defaultdict(list)
    print("| model | whole | in a row | rows | calls | beyond rows, a call | estimated |")
    print("|---|---|---|---|---|---|---|")
    for model in read_extractions(extractions(arguments.results)):
        name = model.model
        if name not in (arguments.models or compared):
            continue
        whole_s, calls = in_a_fork(in_context, model.definition, arguments.search_path)
        alone_s = [rows.get(tuple_id, 0.0) for tuple_id, _ in calls]
        kernels = sum(count for _, count in model.kernels())
        beyond_us = (whole_s - sum(alone_s)) / kernels * 1e6
        estimated_us = compared[name]["overhead_time_s"] / kernels * 1e6
        cells = [whole_s, sum(seconds for _, seconds in calls), sum(alone_s)]
        times = " | ".join(f"{seconds * 1e3:.2f} ms" for seconds in cells)
        print(f"| {name} | {times} | {kernels} | {beyond_us:.1f} us | {estimated_us:.1f} us |")
        for distance, excess_s in excess(model, calls, rows):
            excesses[round(math.log2(distance / core_cache_bytes))].append(excess_s)
    print("\n| moved since the last call / private cache | calls | beyond the row, median |")
    print("|---|---|---|")
    for power, found in sorted(excesses.items()):
        print(f"| {2.0**power:g} | {len(found)} | {statistics.median(found) * 1e6:.1f} us |")


def in_context(definition, search_path):
    """Seconds of a whole model, and of each of its calls in a row."""
    footprint_bytes = footprint(CpuDevice())
    device = OneBlock(2**20)
    watch = device.watch(device.baseline_s())
    with construction.inference_conditions():
        torch.manual_seed(0)
        module = construction.build(definition, search_path)
        return time_in_context(module, definition, device, watch, footprint_bytes)


def excess(model, calls, rows):
    """For each short call: bytes moved since the last call of its operator, seconds beyond it.

    The model runs in a loop: its last call precedes its first one.
    """
    moved, last = 0, {}
    for second_pass in (False, True):
        for tuple_id, seconds in calls:
            record = model.by_id.get(tuple_id)
            if record is None or not record.launches_kernel:
                continue
            operator = record.operator_tuple.operator
            alone_s = rows.get(tuple_id)
            if second_pass and alone_s is not None and alone_s < SHORT_S:
                yield max(1, moved - last[operator]), seconds - alone_s
            last[operator] = moved
            moved += record.bytes


if __name__ == "__main__":
    main()
