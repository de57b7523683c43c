"""Do interpolated steps of decoding cost what measured ones do? On a finished study of generations.

For each generation whose study measured more lengths than it needs, all but a few evenly spread
ones are interpolated from these few, as sums over operators and as whole steps, and compared with
what was measured there; then, how far sums are from wholes at all lengths.

    PYTHONPATH=scripts python -m tests.benchmarks.generation RESULTS [--lengths 4]
"""

import argparse
import itertools
import re
import statistics
from pathlib import Path

from opcost.costs.interpolation import Interpolation
from opcost.rows import records, schemas
from opcost.rows.quantities import TIME
from opcost.statistics import ratio

STEP = re.compile(r"(.+)\[cache=(\d+)\]")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--lengths", type=int, default=4)
    arguments = parser.parse_args()
    compared = records.read(arguments.results / "comparison.parquet", schemas.COMPARISON)
    steps = {}
    for row in compared.to_pylist():
        found = STEP.fullmatch(row["model"])
        if found is not None:
            steps.setdefault(found[1], {})[int(found[2])] = row
    every = {"estimate": [], "reference": []}
    for name, rows in steps.items():
        for whose, kept in every.items():
            kept += interpolated(name, rows, TIME.of(whose), arguments.lengths)
        errors = [TIME.error.read(row) for row in rows.values()]
        print(
            f"{name}: sum against whole at {len(rows)} lengths: "
            f"{statistics.median(abs(each.value) for each in errors):.1%} in the median, "
            f"{max(abs(each.value) for each in errors):.1%} at most; "
            f"{sum(each.low <= 0 <= each.high for each in errors)} intervals hold zero"
        )
    for whose, kept in every.items():
        print(
            f"interpolated {whose}: {len(kept)} lengths, "
            f"{statistics.median(abs(each.value - 1) for each in kept):.1%} off in the median, "
            f"{max(abs(each.value - 1) for each in kept):.1%} at most; "
            f"{sum(each.low <= 1 <= each.high for each in kept)} intervals of the ratio hold 1, "
            f"±{statistics.median(each.relative_half_width for each in kept):.1%} in the median"
        )


def interpolated(name, rows, quantity, most):
    """The ratios of interpolated to measured costs at the lengths that are left out."""
    lengths = sorted(rows)
    places = {round(place * (len(lengths) - 1) / (most - 1)) for place in range(most)}
    known = [lengths[place] for place in sorted(places)]
    found = Interpolation(known, [quantity.read(rows[length]) for length in known])
    ratios = []
    for length in itertools.filterfalse(known.__contains__, lengths):
        measured = quantity.read(rows[length])
        ratios.append(ratio(found.at(length), measured))
        print(
            f"  {name} {quantity}: {length} cached tokens: "
            f"{quantity.show(measured.value)}, {ratios[-1].value - 1:+.1%} interpolated"
        )
    half = found.half_width
    print(f"  {name} {quantity}: of {known}: within {'?' if half is None else format(half, '.1%')}")
    return ratios


if __name__ == "__main__":
    main()
