"""Do intervals hold what they promise? On finished studies, of one machine, any number of them.

For each results folder, over its models that were measured end to end: how many intervals of the
difference between estimate and end-to-end time hold zero; how many intervals of the estimate, of
whose model error a model's own end-to-end time is no part, hold that time; the median half-width of
the difference; and its size.
For every two folders: how many intervals of the ratio of the rows of a tuple hold one.

    PYTHONPATH=scripts python -m tests.benchmarks.coverage RESULTS...
"""

import argparse
import itertools
import statistics
from pathlib import Path

import numpy as np
from opcost.costs.answers import costs_of_models
from opcost.databases.database import read_database
from opcost.rows.quantities import TIME
from opcost.statistics import ratio

ROWS = 200


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+")
    folders = parser.parse_args().results
    for folder in folders:
        print(f"{folder}: {of_models(folder)}")
    for first, second in itertools.combinations(folders, 2):
        print(f"{first}, {second}: {of_rows(first, second)}")


def of_models(folder):
    compared = costs_of_models(folder / "answers.parquet")
    pairs = [
        (TIME.error.read(row), TIME.of("estimate").read(row), TIME.of("end_to_end").read(row))
        for row in compared
    ]
    known = [pair for pair in pairs if pair[0] is not None and pair[0].low is not None]
    if not known:
        return "no model has a difference"
    zero = sum(error.low <= 0 <= error.high for error, _, _ in known)
    held = sum(total.low <= whole.value <= total.high for _, total, whole in known)
    sizes = [abs(error.value) for error, _, _ in known]
    halves = [(error.high - error.low) / 2 for error, _, _ in known]
    return (
        f"{len(known)} models: {zero} intervals of the difference hold zero, {held} of the "
        f"estimate hold the end-to-end time; half-width {statistics.median(halves):.1%} in the "
        f"median; difference {statistics.median(sizes):.1%} in the median, {max(sizes):.1%} at most"
    )


def of_rows(*folders):
    first, second = (rows_of(folder) for folder in folders)
    shared = sorted(first.keys() & second.keys())
    chosen = np.random.default_rng(0).permutation(shared)[:ROWS].tolist()
    ratios = [ratio(first[name], second[name]) for name in chosen]
    held = sum(each.low <= 1 <= each.high for each in ratios)
    half = statistics.median((each.high - each.low) / 2 for each in ratios)
    middle = statistics.median(each.value for each in ratios)
    return (
        f"{held} of {len(ratios)} intervals of the ratio of two rows hold 1; half-width {half:.1%} "
        f"in the median; ratio {middle:.3f} in the median"
    )


def rows_of(folder):
    found = {
        (row["target"], row["tuple_id"]): TIME.read(row)
        for row in read_database(folder / "database.parquet").to_pylist()
        if row["status"] == "ok"
    }
    return {key[1]: each for key, each in found.items() if each and each.low is not None}


if __name__ == "__main__":
    main()
