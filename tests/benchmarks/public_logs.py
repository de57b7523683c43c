"""Predictions on published measurements of other tools: the same GPU, and one GPU from another.

    opcost import A30.log --source https://github.com/ConstantinNicolai/ml-operator-profiling \\
        -o A30.parquet
    python -m tests.benchmarks.public_logs A30.parquet RTX2080TI.parquet

Each database has one target. Same GPU: its rows are dealt into ten parts, each of which is
predicted from the others. Another GPU: of the rows that both have, so many are drawn, twenty times;
the others are predicted from them and from all rows of the other GPU. Power is energy over time.
Errors are of ln(predicted / measured), in per cent.
"""

import argparse
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opcost.databases.database import read_database
from opcost.prediction.predictor import COLUMNS, Predictor, Unpredictable
from opcost.rows.quantities import ENERGY, TIME

from tests.benchmarks.prediction import Errors, record_of

Row = Mapping[str, Any]
PARTS, DRAWS = 10, 20
SHARED = (20, 50, 100)
_READ = ("tuple_id", "status", "flags", *COLUMNS, TIME.value, ENERGY.value)


class Both:
    """Errors of time, energy and power."""

    def __init__(self) -> None:
        self.errors = {"time": Errors(), "energy": Errors(), "power": Errors()}

    def add(self, predictors: Sequence[Predictor], tested: Sequence[Row]) -> None:
        """Predict the time and the energy of rows, and compare."""
        for row in tested:
            try:
                found = [each.predict(record_of(row)).cost for each in predictors]
            except Unpredictable:
                for each in self.errors.values():
                    each.refused += 1
                continue
            pairs = zip((TIME, ENERGY), found, strict=True)
            for quantity, cost in pairs:
                half = math.log(cost.high / cost.value)
                self.errors[str(quantity)].add(cost.value, row[quantity.value], half)
            power_w = row[ENERGY.value] / row[TIME.value]
            self.errors["power"].add(found[1].value / found[0].value, power_w)

    def lines(self, what: str) -> Iterator[str]:
        """A line for each quantity."""
        return (f"{what}, {name}: {errors}" for name, errors in self.errors.items())


def same(rows: Sequence[Row]) -> Both:
    """Of one GPU."""
    found, order = Both(), random.Random(0).sample(rows, len(rows))
    for part in range(PARTS):
        others = [row for n, row in enumerate(order) if n % PARTS != part]
        predictors = [Predictor(others, quantity, {}) for quantity in (TIME, ENERGY)]
        found.add(predictors, order[part::PARTS])
    return found


def other(rows: Sequence[Row], there: Sequence[Row], number: int) -> Both:
    """Of one GPU from another and so many that both have."""
    found = Both()
    costs = {q: {row["tuple_id"]: row[q.value] for row in there} for q in (TIME, ENERGY)}
    shared = [row for row in rows if row["tuple_id"] in costs[TIME]]
    for draw in range(DRAWS):
        order = random.Random(draw).sample(shared, len(shared))
        predictors = [Predictor(order[:number], q, {}, costs[q]) for q in (TIME, ENERGY)]
        found.add(predictors, order[number:])
    return found


def main() -> None:
    """Print the errors of every database, and of each from each other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("databases", type=Path, nargs="+")
    rows = {
        path.stem: [row for row in read_database(path, _READ).to_pylist() if row["status"] == "ok"]
        for path in parser.parse_args().databases
    }
    for name, own in rows.items():
        print("\n".join(same(own).lines(f"{name} ({len(own)} rows)")))
        for source, there in rows.items():
            for number in SHARED if source != name else ():
                lines = other(own, there, number).lines(f"{name} from {source} and {number}")
                print("\n".join(lines))


if __name__ == "__main__":
    main()
