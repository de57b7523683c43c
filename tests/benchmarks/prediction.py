"""How good are predictions of what was not measured, and do their intervals hold?

    python -m tests.benchmarks.prediction [DATABASE ...]      default: the reference data

For each target, tuples that other programs did not disturb are predicted without themselves: a
tenth of the tuples at a time, and what only one model has without that model. Power is predicted
energy / predicted time. Models are sums of what is predicted and of what others measured of them.
Sizes beyond the measured range: of each form, the rows of the most (least) work are left out so far
that the rest ends one and two octaves from the most (least), of which the last half octave is
predicted. For each two targets that share tuples: one from the other, without a whole operator. All
errors are of ln(predicted / measured), in per cent.

Another model takes the place of the predictor with `--predictor MODULE:CLASS`, a module on
PYTHONPATH; the predictor then follows it. FloorTimesMedian and NearestRatio below are two; one that
is independent has the methods

    class Mine:
        def __init__(self, rows, quantity, calls, source=None):
            "Fit to rows of a database, whose costs are row[quantity.value]."

        def predict(self, record):
            "Raise Unpredictable, or return the cost of record.operator_tuple:"
            return Prediction(Estimate(value, low, high), deviation=0.0, nearest=[])

        def error_of_sum(self, parts):
            "Half of the 95 % interval of a sum of (calls, Prediction), relative; nan if unknown."

and `Predictor` of scripts/opcost/prediction/predictor.py says what they mean.
"""

import argparse
import importlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from opcost.prediction.predictor import LEAST_SHARED, Prediction, Predictor, Unpredictable
from opcost.rows.quantities import ENERGY, POWER, TIME, Quantity
from opcost.statistics import Estimate
from opcost.text import counted, table
from opcost.tuples.operator_tuple import short_name

from tests.benchmarks.prediction_splits import (
    Row,
    Split,
    Target,
    ends_left_out,
    models_left_out,
    read_targets,
    record_of,
    tenths_left_out,
    undisturbed,
)

Make = Callable[..., Predictor]
_LISTED = 12
_HEADER = (
    "predicted",
    "number",
    "median",
    "90 % below",
    "worst",
    "bias",
    "hold",
    "half",
    "refused",
)


class FloorTimesMedian(Predictor):
    """A simple method: the least time that the device could need, times a median ratio."""

    def predict(self, record):
        """The cost of a tuple, without an interval; refused are the same as by the predictor."""
        ratios = [row[self.quantity.value] / floor_of(self, row) for row in self.rows]
        return self._replaced(record, float(np.median(ratios)))

    def _replaced(self, record, ratio):
        base = self.base(record.operator_tuple.tuple_id, record.flops, record.bytes)
        cost = Estimate(ratio * base, math.nan, math.nan)
        return super().predict(record)._replace(cost=cost)


class NearestRatio(FloorTimesMedian):
    """A simple method: the least time, times the ratio of the nearest tuple."""

    def predict(self, record):
        """The cost of a tuple, without an interval."""
        nearest = Predictor.predict(self, record).nearest[0]
        return self._replaced(record, nearest[self.quantity.value] / floor_of(self, nearest))


def floor_of(predictor: Predictor, row: Row) -> float:
    """The least seconds of a row's tuple on the predictor's device."""
    return predictor.base(row["tuple_id"], row["flops"], row["bytes"])


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

    def cells(self) -> list[str]:
        """The columns of _HEADER, but the first."""
        if not self.logs:
            return ["0", *["-"] * 6, str(self.refused)]
        sizes, halves = 100 * np.abs(self.logs), np.array(self.halves)
        known = not np.isnan(halves).any()
        return [
            str(len(sizes)),
            f"{np.median(sizes):.1f}",
            f"{np.quantile(sizes, 0.9):.1f}",
            f"{sizes.max():.0f}",
            f"{100 * np.mean(self.logs):+.1f}",
            f"{100 * np.mean(np.abs(self.logs) <= halves):.1f}" if known else "-",
            f"{100 * np.median(halves):.0f}" if known else "-",
            str(self.refused),
        ]

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {cell}" for name, cell in zip(_HEADER[1:], self.cells(), strict=True)
        )


Found = Sequence[tuple[Split, Predictor, Sequence[tuple[Row, Prediction | None]]]]
"""For each split the predictor, and what it says of the rows; None if it refuses."""


def predicted(splits: Iterable[Split], quantity: Quantity, make: Make) -> Found:
    """The predictions of each split."""
    found = []
    for split in splits:
        predictor = make(split.known, quantity, split.calls)
        found.append((split, predictor, [(row, answer(predictor, row)) for row in split.tested]))
    return found


def answer(predictor: Predictor, row: Row) -> Prediction | None:
    """The prediction of a row's tuple; None if it is refused."""
    try:
        return predictor.predict(record_of(row))
    except Unpredictable:
        return None


def errors_of_tuples(found: Found, quantity: Quantity) -> dict[str, Errors]:
    """The errors of each operator, and of all as ''."""
    errors: dict[str, Errors] = defaultdict(Errors)
    for _, _, answers in found:
        for row, each in answers:
            for one in (errors[""], errors[short_name(row["operator"])]):
                if each is None:
                    one.refused += 1
                else:
                    half = math.log(each.cost.high / each.cost.value)
                    one.add(each.cost.value, row[quantity.value], half)
    return errors


def errors_of_power(times: Found, energies: Found) -> Errors:
    """Power as predicted energy over predicted time, against measured energy over time."""
    errors = Errors()
    for (_, _, of_time), (_, _, of_energy) in zip(times, energies, strict=True):
        for (row, time), (_, energy) in zip(of_time, of_energy, strict=True):
            if time is None or energy is None:
                errors.refused += 1
            else:
                measured = row[ENERGY.value] / row[TIME.value]
                errors.add(energy.cost.value / time.cost.value, measured)
    return errors


def errors_of_models(found: Found, target: Target, quantity: Quantity) -> tuple[Errors, float]:
    """The errors of the models' sums, as far as they are undisturbed, of which other models
    measured a part; the predicted share (median).
    """
    errors, shares = Errors(), [math.nan]
    costs = {row["tuple_id"]: row[quantity.value] for row in undisturbed(target.rows)}
    for split, predictor, answers in found:
        calls = target.calls[split.model]
        parts = [(calls[row["tuple_id"]], each) for row, each in answers if each is not None]
        if len(parts) < len(answers):
            errors.refused += 1
            continue
        own = {row["tuple_id"] for row, _ in answers}
        measured = sum(n * costs[i] for i, n in calls.items() if i in costs)
        known = sum(n * costs[i] for i, n in calls.items() if i in costs and i not in own)
        total = sum(n * each.cost.value for n, each in parts)
        shares.append(total / (total + known))
        errors.add(total + known, measured, shares[-1] * predictor.error_of_sum(parts))
    return errors, float(np.nanmedian(shares)) if len(shares) > 1 else math.nan


def operators_left_out(here: Target, there: Target, make: Make) -> dict[str, Errors]:
    """One device from another, each operator without its own rows: by quantity."""
    ids = {row["tuple_id"] for row in there.rows}
    shared = [row for row in here.rows if row["tuple_id"] in ids]
    errors, found = {}, {}
    for quantity in here.quantities if there.quantities == here.quantities else [TIME]:
        costs = {row["tuple_id"]: row[quantity.value] for row in there.rows}
        found[quantity] = []
        for operator in sorted({row["operator"] for row in shared}):
            others = [row for row in shared if row["operator"] != operator]
            tested = [row for row in shared if row["operator"] == operator]
            if len(others) >= LEAST_SHARED:
                predictor = make(others, quantity, {}, costs)
                answers = [(row, answer(predictor, row)) for row in tested]
                found[quantity].append((Split(others, {}, tested), predictor, answers))
        errors[str(quantity)] = errors_of_tuples(found[quantity], quantity)[""]
    if ENERGY in found:
        errors[str(POWER)] = errors_of_power(found[TIME], found[ENERGY])
    return errors


def lines_of(target: Target, methods: Mapping[str, Make]) -> Iterator[list[str]]:
    """The cells of a target's table."""
    splits = {"a tenth": [*tenths_left_out(target)], "own of a model": [*models_left_out(target)]}
    first = next(iter(methods))
    for left_out, chosen in splits.items():
        found = {
            (quantity, name): predicted(chosen, quantity, make)
            for quantity in target.quantities
            for name, make in methods.items()
            if chosen
        }
        for (quantity, name), each in found.items():
            yield [f"{quantity}, {left_out}, {name}", *errors_of_tuples(each, quantity)[""].cells()]
        if (ENERGY, first) in found:
            errors = errors_of_power(found[TIME, first], found[ENERGY, first])
            yield [f"power, {left_out}, {first}", *errors.cells()]
    for quantity in target.quantities if splits["own of a model"] else ():
        each = found[quantity, first]
        errors, share = errors_of_models(each, target, quantity)
        text = f"{quantity}, models, {share:.0%} predicted, {first}" if errors.logs else "models"
        yield [text, *errors.cells()]
        families = errors_of_tuples(each, quantity)
        for family in sorted(families, key=lambda name: -len(families[name].logs))[1:_LISTED]:
            yield [f"{quantity}, own of a model, {family}", *families[family].cells()]
    for quantity in target.quantities:
        for octaves in (1, 2):
            for sign, name in ((1, "most"), (-1, "least")):
                split, distance = ends_left_out(target, octaves, sign)
                errors = errors_of_tuples(predicted([split], quantity, methods[first]), quantity)
                text = (
                    f"{quantity}, {name} work, {counted(octaves, 'octave')} beyond ({distance:.1f})"
                )
                yield [text, *errors[""].cells()]


def class_named(text: str) -> Make:
    """The class MODULE:CLASS. Raises ArgumentTypeError if there is none."""
    module, _, name = text.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no MODULE:CLASS: {error}") from error


def main() -> None:
    """Print the errors of all targets of the databases."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("databases", type=Path, nargs="*")
    parser.add_argument("--predictor", type=class_named, metavar="MODULE:CLASS")
    given = parser.parse_args()
    methods: dict[str, Make] = {"given": given.predictor} if given.predictor else {}
    methods |= {
        "predictor": Predictor,
        "floor x median ratio": FloorTimesMedian,
        "ratio of the nearest": NearestRatio,
    }
    targets = [*read_targets(given.databases)]
    for target in targets:
        print(f"\n{target.name}: {len(target.rows)} rows, {len(target.calls)} models")
        print("\n".join(table(_HEADER, [*lines_of(target, methods)])), flush=True)
    for here in targets:
        for there in targets:
            errors = operators_left_out(here, there, methods[next(iter(methods))])
            if here != there and errors["time"].logs:
                print(f"\n{here.name} from {there.name}, without a whole operator")
                cells = [[quantity, *each.cells()] for quantity, each in errors.items()]
                print("\n".join(table(_HEADER, cells)))


if __name__ == "__main__":
    main()
