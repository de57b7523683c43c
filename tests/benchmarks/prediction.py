"""How good are predictions of what was not measured, and do their intervals hold?

    python -m tests.benchmarks.prediction [DATABASE ...]      default: the reference data

For each target with models: each model is left out in turn, so that the tuples that only it has are
predicted from the others, unless other programs disturbed them. Printed are errors of tuples, of
operator families and of models (with what others measured of them), the share of 95 % intervals
that hold, and of tuples refused; beside two simple methods: the floor times the median of cost /
floor, and the same ratio as the nearest tuple of the operator. For each two targets that share
tuples: one from the other, without a whole operator. All errors are of ln(predicted / measured), in
per cent.
"""

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from opcost.databases.database import REFERENCE, read_database
from opcost.databases.model_ratios import read_ratios
from opcost.prediction.predictor import COLUMNS, LEAST_SHARED, Predictor, Unpredictable
from opcost.rows.flags import DISTURBED
from opcost.rows.quantities import ENERGY, TIME, Quantity
from opcost.tuples.operator_tuple import OperatorTuple, short_name
from opcost.tuples.tuple_record import TupleRecord

Row = Mapping[str, Any]
_READ = ("target", "tuple_id", "operator", "status", "flags", *COLUMNS, TIME.value, ENERGY.value)
_LISTED = 8


class Errors:
    """ln(predicted / measured), and whether the intervals hold."""

    def __init__(self) -> None:
        self.logs: list[float] = []
        self.halves: list[float] = []
        self.refused = 0

    def add(self, predicted: float, measured: float, half: float = math.nan) -> None:
        """One prediction, with half of its interval of the logarithm."""
        self.logs.append(math.log(predicted / measured))
        self.halves.append(half)

    def __str__(self) -> str:
        if not self.logs:
            return f"none, {self.refused} refused"
        sizes = 100 * np.abs(self.logs)
        text = f"{len(sizes)}: median {np.median(sizes):.1f}, p90 {np.quantile(sizes, 0.9):.1f}, "
        text += f"worst {sizes.max():.0f}, bias {100 * np.mean(self.logs):+.1f}"
        if not np.isnan(self.halves).any():
            hold = np.mean(np.abs(self.logs) <= self.halves)
            text += f"; {hold:.1%} hold, half-width {100 * np.median(self.halves):.0f} (median)"
        return text + (f"; {self.refused} refused" if self.refused else "")


def record_of(row: Row) -> TupleRecord:
    """What a prediction needs to know of a row's tuple."""
    call = OperatorTuple.from_json(row["canonical_json"])
    return TupleRecord(call, (), True, row["flops"], row["bytes"])


def models_left_out(
    rows: Sequence[Row], calls: Mapping[str, Mapping[str, int]], quantity: Quantity
) -> Iterator[str]:
    """The lines of one target."""
    tuples, models, floors, neighbours = Errors(), Errors(), Errors(), Errors()
    families: dict[str, Errors] = defaultdict(Errors)
    by_id = {row["tuple_id"]: row for row in rows if DISTURBED not in row["flags"]}
    shares, seconds = [], []
    for model, own_calls in calls.items():
        further = {i for name, each in calls.items() if name != model for i in each}
        own = [i for i in own_calls if i in by_id and i not in further]
        others = [row for row in rows if row["tuple_id"] not in own_calls.keys() - further]
        if not own or not others:
            continue
        began_s = time.perf_counter()
        predictor = Predictor(others, quantity, {k: v for k, v in calls.items() if k != model})
        parts = []
        for tuple_id in own:
            row = by_id[tuple_id]
            measured, family = row[quantity.value], short_name(row["operator"])
            try:
                found = predictor.predict(record_of(row))
            except Unpredictable:
                tuples.refused += 1
                families[family].refused += 1
                continue
            parts.append((own_calls[tuple_id], found))
            half = math.log(found.cost.high / found.cost.value)
            for errors in (tuples, families[family]):
                errors.add(found.cost.value, measured, half)
            ratios = ratios_to_floor(predictor, others, quantity)
            floor = floor_of(predictor, row)
            floors.add(floor * float(np.median(list(ratios.values()))), measured)
            neighbours.add(floor * ratios[found.nearest[0]["tuple_id"]], measured)
        seconds.append(time.perf_counter() - began_s)
        if len(parts) < len(own):
            models.refused += 1
            continue
        known = sum(
            n * by_id[i][quantity.value]
            for i, n in own_calls.items()
            if i in further & by_id.keys()
        )
        measured = sum(own_calls[i] * by_id[i][quantity.value] for i in own) + known
        predicted = sum(n * each.cost.value for n, each in parts)
        shares.append(predicted / (predicted + known))
        half = shares[-1] * predictor.error_of_sum(parts)
        models.add(predicted + known, measured, half)
    yield f"  {quantity}, tuples: {tuples}"
    yield f"  {quantity}, tuples, floor x median ratio: {floors}"
    yield f"  {quantity}, tuples, ratio of the nearest: {neighbours}"
    yield f"  {quantity}, models: {models}"
    if shares:
        yield f"  predicted share of a model: {np.median(shares):.0%} (median)"
    yield f"  seconds to fit and predict a model: {np.median(seconds):.2f} (median)"
    for family, errors in sorted(families.items(), key=lambda item: -len(item[1].logs))[:_LISTED]:
        yield f"    {family}: {errors}"


def ratios_to_floor(
    predictor: Predictor, rows: Sequence[Row], quantity: Quantity
) -> dict[str, float]:
    """Cost over floor of each row."""
    return {row["tuple_id"]: row[quantity.value] / floor_of(predictor, row) for row in rows}


def floor_of(predictor: Predictor, row: Row) -> float:
    """The least seconds of a row's tuple on the predictor's device."""
    return predictor.base(row["tuple_id"], row["flops"], row["bytes"])


def operators_left_out(here: Sequence[Row], there: Sequence[Row], quantity: Quantity) -> Errors:
    """Of one device from another, each operator without its own rows."""
    errors, costs = Errors(), {row["tuple_id"]: row[quantity.value] for row in there}
    shared = [row for row in here if row["tuple_id"] in costs]
    for operator in {row["operator"] for row in shared}:
        others = [row for row in shared if row["operator"] != operator]
        predictor = Predictor(others, quantity, {}, costs)
        for row in (row for row in shared if row["operator"] == operator):
            if len(others) < LEAST_SHARED:
                errors.refused += 1
                continue
            cost = predictor.predict(record_of(row)).cost
            errors.add(cost.value, row[quantity.value], math.log(cost.high / cost.value))
    return errors


def main() -> None:
    """Print the errors of all targets of the databases."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("databases", type=Path, nargs="*")
    paths = parser.parse_args().databases or sorted(REFERENCE.glob("*.parquet"))
    targets: dict[str, list[Row]] = {}
    for path in paths:
        rows = [row for row in read_database(path, _READ).to_pylist() if row["status"] == "ok"]
        ratios = read_ratios(path)
        for target in dict.fromkeys(row["target"] for row in rows):
            own = targets[f"{path.stem}: {target}"] = [r for r in rows if r["target"] == target]
            calls = {each.model: each.calls for each in ratios.get(target, ()) if each.calls}
            print(f"{path.stem}: {target}: {len(own)} rows, {len(calls)} models")
            for quantity in (TIME, ENERGY):
                if calls and all(row[quantity.value] for row in own):
                    print("\n".join(models_left_out(own, calls, quantity)))
    for here in targets:
        for there in targets:
            if here != there:
                errors = operators_left_out(targets[here], targets[there], TIME)
                print(f"{here} from {there}, without a whole operator: {errors}")


if __name__ == "__main__":
    main()
