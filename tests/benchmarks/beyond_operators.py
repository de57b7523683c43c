"""What calls take in models beyond the rows of their operators: the calls in place of a study.

The first table compares the whole models and their operators in place with the rows of the study,
and the rest that call overhead has to explain with what the study estimates for it. The second one
shows by how much short operators (below 25 us) exceed their rows, by the data that moved since the
last call of the same operator.

    PYTHONPATH=scripts python -m tests.benchmarks.beyond_operators [--results FOLDER] [MODEL ...]
"""

import argparse
import math
import statistics
from collections import defaultdict
from pathlib import Path

from opcost.costs.explanation import explain
from opcost.tuples.model_tuples import read_extractions

SHORT_S = 25e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--results", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    excesses = defaultdict(list)
    print("| model | whole | in place | rows | calls | beyond rows, a call | estimated |")
    print("|---|---|---|---|---|---|---|")
    for model in read_extractions(arguments.results.glob("tuples/*.pkl")):
        if arguments.models and model.model not in arguments.models:
            continue
        for found in explain(model, [arguments.results / "database.parquet"]):
            estimate, compared = found.estimate, found.compared
            if estimate.in_place.operators is None or compared["overhead_time_s"] is None:
                continue
            rows = {row["tuple_id"]: row["time_s"] for row in estimate.rows}
            whole_s, alone_s = compared["reference_time_s"], compared["operators_time_s"]
            beyond_us = (whole_s - alone_s) / estimate.calls * 1e6
            estimated_us = compared["overhead_time_s"] / estimate.calls * 1e6
            cells = [whole_s, estimate.in_place.operators.value, alone_s]
            times = " | ".join(f"{seconds * 1e3:.2f} ms" for seconds in cells)
            print(
                f"| {model.model} | {times} | {estimate.calls} | {beyond_us:.1f} us "
                f"| {estimated_us:.1f} us |"
            )
            core_cache_bytes = estimate.rows[0]["core_cache_bytes"]
            for distance, excess_s in excess(estimate.model, estimate.in_place.by_call_s, rows):
                excesses[round(math.log2(distance / core_cache_bytes))].append(excess_s)
    print("\n| moved since the last call / private cache | calls | beyond the row, median |")
    print("|---|---|---|")
    for power, found in sorted(excesses.items()):
        print(f"| {2.0**power:g} | {len(found)} | {statistics.median(found) * 1e6:.1f} us |")


def excess(model, seconds, rows):
    """For each short call: bytes moved since the last call of its operator, seconds beyond it.

    The model runs in a loop: its last call precedes its first one.
    """
    moved, last, ids = 0, {}, list(model.by_id)
    for second_pass in (False, True):
        for call, in_place_s in zip(model.calls, seconds, strict=True):
            record = model.tuples[call.position]
            if not record.launches_kernel:
                continue
            operator = record.operator_tuple.operator
            alone_s = rows.get(ids[call.position])
            if second_pass and alone_s is not None and alone_s < SHORT_S:
                yield max(1, moved - last[operator]), in_place_s - alone_s
            last[operator] = moved
            moved += record.bytes


if __name__ == "__main__":
    main()
