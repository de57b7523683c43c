"""The cost of tuples that nobody measured on a device, from those that were measured there.

What is predicted is the ratio of a cost, time or energy, to a base that is known without measuring:

    y = ln(cost / base)

On one device, the base is what it could do at best: max(FLOPs / peak, bytes / bandwidth, shortest
time), with the three of its own rows. With a `source`, it is the cost of the same tuple on another
device. y is interpolated between the measured tuples (kriging.py).

**Intervals** are conformal (Lei et al., Distribution-free predictive inference for regression,
Journal of the American Statistical Association 113, 2018): each measured tuple is predicted without
those that only the same model has, and its error is divided by its standard deviation. A multiple
of the standard deviation that holds 95 % of these scores makes the interval of a prediction.

**A sum** of predictions errs less than its terms if their errors differ, and as much if they agree.
So it has scores of its own: those of the models' sums, divided by the mean deviation of their
terms, weighted by cost. As the model error, they are shrunk towards a usual score, of errors that
agree.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from opcost.noise import USUAL_DEGREES
from opcost.prediction.features import Features, features_of
from opcost.prediction.kriging import Array, Surface, covariance
from opcost.rows.flags import DISTURBED
from opcost.rows.quantities import TIME, Quantity
from opcost.statistics import Estimate, student_97_5
from opcost.text import counted
from opcost.tuples.operator_tuple import OperatorTuple
from opcost.tuples.tuple_record import TupleRecord

Row = Mapping[str, Any]
Calls = Mapping[str, Mapping[str, int]]
"""Model -> tuple id -> number of calls."""

COLUMNS = ("canonical_json", "description", "flops", "bytes")
"""The columns of rows that predictions need besides those of an estimate."""

LEAST_SHARED = 20
"""The least number of tuples that two devices share, for one to predict the other."""

_LEAST_ROWS, _MOST_ROWS = 8, 2000
_LEAST_OF_FORM = 3
MOST_UNCERTAIN = 20.0
"""Half of the widest interval of a logarithm: nothing is known."""

_OCTAVES_ABOVE = 4.0
_WIDER_BY_OCTAVE = 0.25
"""Beyond the measured sizes, deviations are larger than those of the process (tests/benchmarks)."""

_NEAREST = 3
_OF_OPERATOR = 40
_COVERAGE = 0.95
_BANDWIDTH_QUANTILE = 0.97
_DISTURBED_VARIANCE = 0.25
"""Of rows that other programs disturbed: they count where there are no others nearby."""


def drawn(rows: Sequence[Row]) -> Sequence[Row]:
    """At most 2,000 of the rows, since seconds and memory grow with the square of their number, or
    faster: the same ones each time.
    """
    return sorted(rows, key=lambda row: str(row["tuple_id"]))[:_MOST_ROWS]  # ids are hashes


class Unpredictable(Exception):
    """Why the cost of a tuple is not predicted."""


class Prediction(NamedTuple):
    """The cost of a call with its 95 % interval; its deviation (see `Predictor.error_of_sum`); the
    nearest measured rows, the nearest first; by how many octaves a size is outside of those
    measured; the least that the device could need, judged by the best of its rows.
    """

    cost: Estimate
    deviation: float
    nearest: Sequence[Row]
    octaves_beyond: float
    best: float


@dataclass(frozen=True)
class Predictor:
    """What the rows of a target, all measured, say of the `quantity` of other tuples.

    `calls` are those of models whose tuples are among the rows; `source`, if given, has the cost of
    all of them, and of others, on another device, by tuple id.
    """

    rows: Sequence[Row]
    quantity: Quantity
    calls: Calls
    source: Mapping[str, float] | None = None

    def predict(self, record: TupleRecord) -> Prediction:
        """The cost of a tuple. Raises Unpredictable if it is unlike all that was measured."""
        tuple_id = record.operator_tuple.tuple_id
        wanted = features_of(record.operator_tuple, record.flops, record.bytes)
        beyond = self._octaves_beyond(wanted)
        if self.source is not None and tuple_id not in self.source:
            raise Unpredictable("the other device does not have it either")
        base = self.base(tuple_id, record.flops, record.bytes)
        [mean], [deviation] = self._surface.at([wanted])
        deviation *= 1 + _WIDER_BY_OCTAVE * beyond
        value = base * math.exp(mean)
        reach = math.exp(min(self._scores[wanted.operator] * deviation, MOST_UNCERTAIN))
        near = covariance([wanted], self._known)[0].argsort()[::-1][:_NEAREST]
        best = min(value, base * float(self._ratios.min()))
        cost = Estimate(value, max(value / reach, best), value * reach)
        return Prediction(cost, float(deviation), [self.rows[n] for n in near], beyond, best)

    def expected(self, records: Sequence[TupleRecord]) -> list[float]:
        """The cost of each tuple, however unlike all that was measured: good for an order only."""
        tuples = [features_of(each.operator_tuple, each.flops, each.bytes) for each in records]
        bases = [
            self.base(each.operator_tuple.tuple_id, each.flops, each.bytes) for each in records
        ]
        means, _ = self._surface.at(tuples)
        return [float(each) for each in bases * np.exp(means)]

    def error_of_sum(self, parts: Sequence[tuple[float, Prediction]]) -> float:
        """Half of the 95 % interval of the logarithm of a sum of (calls, prediction)."""
        weights = [calls * each.cost.value for calls, each in parts]
        deviation = np.average([each.deviation for _, each in parts], weights=weights)
        degrees = USUAL_DEGREES + len(self._scores_of_sums)
        squares = USUAL_DEGREES * self._usual_score**2
        squares += math.fsum(score**2 for score in self._scores_of_sums)
        half = student_97_5(degrees) * math.sqrt(squares / degrees) * float(deviation)
        return min(half, MOST_UNCERTAIN)

    @cached_property
    def _known(self) -> list[Features]:
        return [
            features_of(OperatorTuple.from_json(row["canonical_json"]), row["flops"], row["bytes"])
            for row in self.rows
        ]

    @cached_property
    def _costs(self) -> Array:
        return np.array([row[self.quantity.value] for row in self.rows], float)

    @cached_property
    def _best(self) -> tuple[float, float, float]:
        """FLOPs and bytes in a second, and the shortest time, at best."""
        peak = max((row["flops"] or 0) / row[TIME.value] for row in self.rows)
        speeds = [row["bytes"] / row[TIME.value] for row in self.rows]
        bandwidth = float(np.quantile(speeds, _BANDWIDTH_QUANTILE))
        return peak or 1.0, bandwidth or 1.0, min(row[TIME.value] for row in self.rows)

    def base(self, tuple_id: str, flops: int | None, moved_bytes: int) -> float:
        """The cost at best of a tuple, or that on another device."""
        if self.source is not None:
            return self.source[tuple_id]
        peak, bandwidth, shortest_s = self._best
        return max((flops or 0) / peak, moved_bytes / bandwidth, shortest_s)

    @cached_property
    def _ratios(self) -> Array:
        bases = [self.base(row["tuple_id"], row["flops"], row["bytes"]) for row in self.rows]
        return self._costs / bases

    @cached_property
    def _surface(self) -> Surface:
        noise = [_DISTURBED_VARIANCE * (DISTURBED in (row.get("flags") or ())) for row in self.rows]
        return Surface.through(self._known, np.log(self._ratios), np.array(noise))

    @cached_property
    def _left_out(self) -> tuple[Array, Array]:
        """The error and the deviation of each row, without those that only its model has; without
        those of about the same size, if it has none of its own.
        """
        owners = defaultdict(set)
        for model, calls in self.calls.items():
            for tuple_id in calls:
                owners[tuple_id].add(model)
        groups = defaultdict(list)
        for n, (row, known) in enumerate(zip(self.rows, self._known, strict=True)):
            own = owners[row["tuple_id"]]
            alike = f"{known.form} {round(known.work[1])}"
            groups[next(iter(own)) if len(own) == 1 else alike].append(n)
        return self._surface.left_out([np.array(group) for group in groups.values()])

    @cached_property
    def _alone(self) -> tuple[Array, Array]:
        return self._surface.left_out([np.array([n]) for n in range(len(self.rows))])

    @cached_property
    def _usual_score(self) -> float:
        return float(np.sqrt(np.mean(np.divide(*self._left_out) ** 2)))

    @cached_property
    def _scores(self) -> Mapping[str, float]:
        """The multiple of a deviation that an interval reaches, by operator: as each tuple needs if
        it is left out with its group, or by itself.
        """
        operators = np.array([known.operator for known in self._known])
        scores = [np.abs(np.divide(*each)) for each in (self._left_out, self._alone)]

        def of(chosen: Array) -> float:
            rank = min(1.0, _COVERAGE * (1 + 1 / chosen.sum()))
            return max(float(np.quantile(each[chosen], rank)) for each in scores)

        found = defaultdict(partial(float, of(np.full(len(operators), True))))
        for operator in set(operators):
            if (chosen := operators == operator).sum() >= _OF_OPERATOR:
                found[operator] = of(chosen)
        return found

    @cached_property
    def _scores_of_sums(self) -> list[float]:
        """Of each model: ln(predicted / measured) of what only it has, over the mean deviation."""
        errors, deviations = self._left_out
        places = {row["tuple_id"]: n for n, row in enumerate(self.rows)}
        found = []
        for model, calls in self.calls.items():
            others = {i for name, each in self.calls.items() if name != model for i in each}
            own = [i for i in calls if i in places and i not in others]
            if own:
                at = [places[i] for i in own]
                costs = np.array([calls[i] for i in own]) * self._costs[at]
                total = math.log((costs * np.exp(errors[at])).sum() / costs.sum())
                found.append(total / float(np.average(deviations[at], weights=costs)))
        return found

    def _octaves_beyond(self, wanted: Features) -> float:
        """How far its sizes are outside of those measured. Raises Unpredictable if too far."""
        alike = [known for known in self._known if known.operator == wanted.operator]
        if self.source is not None:
            if len(self.rows) < LEAST_SHARED:
                raise Unpredictable(f"the two devices share {counted(len(self.rows), 'tuple')}")
            return 0.0
        measured = f"{counted(len(self.rows), 'tuple')} measured there"
        if len(self.rows) < _LEAST_ROWS:
            raise Unpredictable(f"only {measured}, at least {_LEAST_ROWS} are needed")
        if not alike:
            raise Unpredictable(f"none of the {measured} is of its operator")
        same = [known for known in alike if known.form == wanted.form]
        known: list[tuple[float, ...]] = [each.work for each in alike]
        sizes: tuple[float, ...] = wanted.work
        if len(same) >= _LEAST_OF_FORM:
            known = [(*each.sizes, *each.work) for each in same]
            sizes = (*wanted.sizes, *wanted.work)
        low, high = np.min(known, axis=0), np.max(known, axis=0)
        above, below = float(np.max(sizes - high)), float(np.max(low - sizes))
        if above > _OCTAVES_ABOVE:
            raise Unpredictable(f"a size is {2**above:.0f} times beyond those measured there")
        return max(above, below, 0.0)
