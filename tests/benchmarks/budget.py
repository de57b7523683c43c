"""What half of the device time explains: the plan's order against random orders.

Reads a finished study (the folder that holds `results`), and asks what a budget of half of its
operators' device time would have measured, had nothing been measured before: the share of FLOPs,
and of the whole models' measured time, that these tuples account for.

    PYTHONPATH=scripts python -m tests.benchmarks.budget FOLDER [--share 0.5]
"""

import argparse
import random
import statistics
from pathlib import Path

from opcost.planning.plan import explained_shares, predicted_times_s
from opcost.rows import records, schemas
from opcost.tuples.manifest import read_manifest, to_benchmark
from opcost.tuples.model_tuples import read_model_tuples
from opcost.tuples.tuple_record import TupleRecord

ORDERS = 200


def affordable(order, rows, budget_s):
    """The first tuples of an order whose jobs fit into the budget."""
    chosen = set()
    for tuple_id in order:
        budget_s -= rows[tuple_id]["device_time_s"]
        if budget_s < 0:
            break
        chosen.add(tuple_id)
    return chosen


def explained(chosen, model, rows, reference_s):
    """The shares of a model's FLOPs, and of its measured time, that the chosen tuples explain."""
    flops = {True: 0, False: 0}
    time_s = 0.0
    for tuple_id, calls in model.call_counts().items():
        record = model.by_id[tuple_id]
        if record.launches_kernel:
            flops[tuple_id in chosen] += calls * (record.flops or 0)
        if tuple_id in chosen:
            time_s += calls * rows[tuple_id]["time_s"]
    return flops[True] / sum(flops.values()), time_s / reference_s


def main():
    """Print a row for each model, and the means."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="local")
    parser.add_argument("--share", type=float, default=0.5)
    arguments = parser.parse_args()
    results = arguments.folder / "results"
    manifest = read_manifest(results / "operator_tuples.json")
    tuples = {name: TupleRecord.from_document(manifest[name]) for name in to_benchmark(manifest)}
    table = records.read(results / "database.parquet", schemas.DATABASE)
    rows = {
        row["tuple_id"]: row
        for row in table.to_pylist()
        if row["status"] == "ok" and row["target"] == arguments.target
    }
    comparison = records.read(results / "comparison.parquet", schemas.COMPARISON)
    references = {
        row["model"]: row["reference_time_s"]
        for row in comparison.to_pylist()
        if row["target"] == arguments.target
    }
    models = [read_model_tuples(results / "tuples" / f"{name}.pkl") for name in references]
    budget_s = arguments.share * sum(row["device_time_s"] for row in rows.values())
    planned = explained_shares(models, tuples, predicted_times_s(tuples, []))
    order = sorted(rows, key=lambda name: -planned[name])
    generator = random.Random(0)
    shuffled = [generator.sample(sorted(rows), len(rows)) for _ in range(ORDERS)]
    print(f"{len(rows)} tuples; budget {budget_s:.0f} s of device time, {arguments.share:.0%}")
    print("| model | FLOPs: plan | random | time: plan | random | all |")
    print("|---|---|---|---|---|---|")
    columns = []
    for model in models:
        reference_s = references[model.model]
        plan = explained(affordable(order, rows, budget_s), model, rows, reference_s)
        others = [
            explained(affordable(other, rows, budget_s), model, rows, reference_s)
            for other in shuffled
        ]
        random_flops, random_time = (
            statistics.mean(column) for column in zip(*others, strict=True)
        )
        _, everything = explained(rows.keys(), model, rows, reference_s)
        columns.append((plan[0], random_flops, plan[1], random_time, everything))
        cells = " | ".join(f"{value:.0%}" for value in columns[-1])
        print(f"| {model.model} | {cells} |")
    cells = " | ".join(f"{statistics.mean(column):.0%}" for column in zip(*columns, strict=True))
    print(f"| mean | {cells} |")


if __name__ == "__main__":
    main()
