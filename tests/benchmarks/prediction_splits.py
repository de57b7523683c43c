"""The measured rows of databases, and which of them benchmarks leave out to predict them."""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from opcost.databases.database import REFERENCE, read_database
from opcost.databases.model_ratios import read_ratios
from opcost.prediction.features import Features, features_of
from opcost.prediction.predictor import COLUMNS
from opcost.rows.flags import DISTURBED
from opcost.rows.quantities import ENERGY, POWER, TIME, Quantity
from opcost.tuples.operator_tuple import OperatorTuple
from opcost.tuples.tuple_record import TupleRecord

Row = Mapping[str, Any]
Calls = Mapping[str, Mapping[str, int]]
_READ = (
    *("target", "tuple_id", "operator", "status", "flags", "device_time_s"),
    *(*COLUMNS, TIME.value, POWER.value, ENERGY.value),
)
_FOLDS = 10
_TESTED_OCTAVES = 0.5


class Split(NamedTuple):
    """Rows to predict others from, with the calls of their models; the rows that are predicted;
    the model whose own tuples they are.
    """

    known: Sequence[Row]
    calls: Calls
    tested: Sequence[Row]
    model: str = ""


class Target(NamedTuple):
    """The measured rows of a target, and the calls of the models that the database knows."""

    name: str
    rows: Sequence[Row]
    calls: Calls

    @property
    def quantities(self) -> list[Quantity]:
        """Time, and energy if all rows have it."""
        return [each for each in (TIME, ENERGY) if all(row[each.value] for row in self.rows)]


def record_of(row: Row) -> TupleRecord:
    """What a prediction needs to know of a row's tuple."""
    call = OperatorTuple.from_json(row["canonical_json"])
    return TupleRecord(call, (), True, row["flops"], row["bytes"])


def read_targets(paths: Iterable[Path]) -> Iterator[Target]:
    """The targets of databases; by default of the reference data."""
    for path in [*paths] or sorted(REFERENCE.glob("*.parquet")):
        rows = [row for row in read_database(path, _READ).to_pylist() if row["status"] == "ok"]
        ratios = read_ratios(path)
        for target in dict.fromkeys(row["target"] for row in rows):
            calls = {each.model: each.calls for each in ratios.get(target, ()) if each.calls}
            own = [row for row in rows if row["target"] == target]
            yield Target(f"{path.stem}: {target}", own, calls)


def undisturbed(rows: Iterable[Row]) -> list[Row]:
    """The rows whose cost is known well enough to test a prediction."""
    return [row for row in rows if DISTURBED not in row["flags"]]


def tenths_left_out(target: Target) -> Iterator[Split]:
    """Each row is predicted once, without a tenth of all that is drawn at random."""
    shuffled = random.Random(0).sample(target.rows, len(target.rows))
    for fold in range(_FOLDS):
        known = [row for n, row in enumerate(shuffled) if n % _FOLDS != fold]
        yield Split(known, target.calls, undisturbed(shuffled[fold::_FOLDS]))


def models_left_out(target: Target) -> Iterator[Split]:
    """What only one model has, without it."""
    for model, own_calls in target.calls.items():
        others = {name: each for name, each in target.calls.items() if name != model}
        own = own_calls.keys() - {tuple_id for each in others.values() for tuple_id in each}
        known = [row for row in target.rows if row["tuple_id"] not in own]
        tested = undisturbed(row for row in target.rows if row["tuple_id"] in own)
        if known and tested:
            yield Split(known, others, tested, model)


def ends_left_out(target: Target, octaves: float, sign: int) -> tuple[Split, float]:
    """The rows of the most (sign 1) or least (-1) work of each form, without those of so many
    octaves; and how far they are from what is left, in octaves (median).
    """
    forms: dict[str, list[tuple[float, Row]]] = defaultdict(list)
    for row in target.rows:
        features = features_of_row(row)
        forms[features.form].append((sign * (features.work[0] or features.work[1]), row))
    known, tested, distances = [], [], []
    for rows in forms.values():
        end = max(work for work, _ in rows)
        left = [(work, row) for work, row in rows if work <= end - octaves]
        known += [row for _, row in left or rows]
        for work, row in rows if left else []:
            if work > end - _TESTED_OCTAVES and DISTURBED not in row["flags"]:
                tested.append(row)
                distances.append(work - max(each for each, _ in left))
    return Split(known, target.calls, tested), float(np.median(distances or math.nan))


def features_of_row(row: Row) -> Features:
    """The features of a row's tuple."""
    return features_of(OperatorTuple.from_json(row["canonical_json"]), row["flops"], row["bytes"])
