"""Does the order of operand sets in memory matter? On a finished study of this processor.

Operators of the study, drawn at random, are timed alone with the same sets in random order and in
the order of memory, in turn, and stand beside what they take in place, inside the running models.

    PYTHONPATH=scripts python -m tests.benchmarks.set_order RESULTS --operators 60 --least-us 120
"""

import argparse
import dataclasses
import os
import random
import statistics
from functools import partial
from pathlib import Path
from time import perf_counter

import torch
from opcost.devices.target_device import open_device
from opcost.measuring.workload import OperatorWorkload, operator_workload
from opcost.models.construction import inference_conditions
from opcost.rows import records, schemas
from opcost.target import Target
from opcost.tuples.manifest import read_record
from opcost.tuples.operator_tuple import short_name
from opcost.tuples.replay import tensors_in_tree
from opcost.workers.isolation import answer_of

BATCH_S, BATCHES = 0.008, 24


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--operators", type=int, default=60)
    parser.add_argument("--least-us", type=float, default=3.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = in_place(arguments.results, arguments.least_us * 1e-6)
    chosen = random.Random(0).sample(sorted(rows), min(arguments.operators, len(rows)))
    print("| operator | sets | random | in order / random | in place / alone |")
    print("|---|---|---|---|---|")
    ratios = {True: [], False: []}
    for tuple_id in chosen:
        row = rows[tuple_id]
        record = read_record(
            next(arguments.results.glob("studies/*/operator_tuples.json")), tuple_id
        )
        measure = partial(timed, record, row["alone_time_s"])
        sets, shuffled_s, in_order_s = answer_of(measure, 600)
        ratios[bool(record.parameters)].append(in_order_s / shuffled_s)
        there = row["in_place_time_s"] / row["alone_time_s"]
        print(
            f"| {row['description']} | {sets} | {shuffled_s * 1e6:.1f} µs "
            f"| {in_order_s / shuffled_s:.2f} | {there:.2f} |"
        )
    for has_weights, found in ratios.items():
        if len(found) > 1:
            low, middle, high = statistics.quantiles(found, n=4)
            kind = f"{len(found)} operators {'with' if has_weights else 'without'} weights"
            print(f"\n{kind}: in order / random {middle:.2f}, half of them {low:.2f} to {high:.2f}")


def in_place(results, least_s):
    """Tuple id -> its row in the first model that has it."""
    found = records.read(results / "in_place.parquet", schemas.IN_PLACE).to_pylist()
    known = [row for row in found if row["alone_time_s"] and row["in_place_time_s"]]
    return {
        row["tuple_id"]: row
        for row in reversed(known)
        if row["alone_time_s"] > least_s and short_name(row["operator"]) != "zeros"
    }


def timed(record, alone_s):
    """The number of sets, and seconds in random order and in that of memory."""
    with inference_conditions():
        workload = operator_workload(record, open_device(Target("cpu", 1, False)), "model", 0)
        calls = tuple(sorted(workload.operands.calls, key=addresses))
        in_order = OperatorWorkload(dataclasses.replace(workload.operands, calls=calls))
        iterations = max(1, round(BATCH_S / alone_s))
        times_s = {workload: [], in_order: []}
        for number in range(BATCHES + 3):  # the first three warm up
            for each, taken_s in times_s.items():
                start = perf_counter()
                each.run(iterations)
                taken_s += [(perf_counter() - start) / iterations] if number >= 3 else []
    return workload.rotation, *map(statistics.median, times_s.values())


def addresses(call):
    """Where the tensors of a call lie, those with most sets first."""
    tensors = tensors_in_tree((call.args, call.kwargs))
    return [tensor.data_ptr() for tensor in sorted(tensors, key=lambda each: each.nbytes)]


if __name__ == "__main__":
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    main()
