"""A model's terms, completed by predictions where a target has no rows."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from opcost.costs.terms import Row, Term
from opcost.prediction.predictor import (
    LEAST_SHARED,
    Prediction,
    Predictor,
    Unpredictable,
    drawn,
)
from opcost.rows import comparability
from opcost.rows.flags import PREDICTED, WAITS_FOR_DEVICE
from opcost.rows.quantities import ENERGY, HOST_TIME, MEASURED, POWER, TIME, Quantity
from opcost.rows.runs import ModelRatio
from opcost.statistics import Estimate
from opcost.tuples.tuple_record import TupleRecord

Range = tuple[float, float]
"""The limits of a 95 % interval, relative to its value."""


@dataclass(frozen=True)
class Completion:
    """The terms of a model; `ranges` are as in `ModelEstimate`; the predictions of each tuple, by
    tuple id.
    """

    terms: Sequence[Term]
    ranges: dict[Quantity, Range] = field(default_factory=dict)
    predictions: dict[str, dict[Quantity, Prediction]] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """All rows of a target with a result, with the columns of an estimate and `predictor.COLUMNS`;
    the ratios of its models; and those rows of each other target.
    """

    rows: Sequence[Row]
    ratios: Sequence[ModelRatio]
    others: Sequence[Sequence[Row]]

    @classmethod
    def among(
        cls, measured: Mapping[Any, Sequence[Row]], name: Any, ratios: Sequence[ModelRatio]
    ) -> "Target":
        """The target of this name, and those of the same kind of device as others, among the
        `measured` rows of each; of one that has none, no others.
        """
        own = measured.get(name, ())
        kind = comparability.kind_of(own[0]) if own else None
        others = (rows for each, rows in measured.items() if each != name and rows)
        return cls(own, ratios, [rows for rows in others if comparability.kind_of(rows[0]) == kind])

    def predictions(self, record: TupleRecord) -> dict[Quantity, tuple[Predictor, Prediction]]:
        """The most certain prediction of time and, if known, of energy. Raises Unpredictable."""
        found = {}
        for quantity, predictors in self._predictors.items():
            known, refusals = [], ["nothing measured there"]
            for predictor in predictors:
                try:
                    known.append((predictor, predictor.predict(record)))
                except Unpredictable as why:
                    refusals.append(str(why))
            if known:
                found[quantity] = min(known, key=lambda pair: _reach(pair[1]))
            elif quantity == TIME:
                raise Unpredictable(refusals[min(1, len(predictors))])
        if ENERGY in found:
            predictor, energy = found[ENERGY]
            power_w = energy.cost.value / found[TIME][1].cost.value
            factor = float(np.clip(power_w, *self._powers_w)) / power_w
            cost = energy.cost.times(factor)
            found[ENERGY] = predictor, energy._replace(cost=cost, best=factor * energy.best)
        return found

    @cached_property
    def _powers_w(self) -> tuple[float, float]:
        """The least and the most power of a row."""
        known = [row[ENERGY.value] / row[TIME.value] for row in self.rows if row[ENERGY.value]]
        return min(known), max(known)

    @cached_property
    def _predictors(self) -> dict[Quantity, list[Predictor]]:
        return {quantity: list(self._of(quantity)) for quantity in (TIME, ENERGY)}

    def _of(self, quantity: Quantity) -> Iterator[Predictor]:
        calls = {each.model: each.calls for each in self.ratios if each.calls}
        known = (row for row in self.rows if row["bytes"] is not None)
        rows = drawn([row for row in known if row[quantity.value]])
        if rows:
            yield Predictor(rows, quantity, calls)
        for other in self.others:
            costs = {row["tuple_id"]: row[quantity.value] for row in other if row[quantity.value]}
            shared = [row for row in rows if row["tuple_id"] in costs]
            if len(shared) >= LEAST_SHARED:
                yield Predictor(shared, quantity, calls, costs)


def completed(terms: Sequence[Term], target: Target) -> Completion:
    """The terms, with a prediction for each that was not measured. Unless that makes a sum, as
    where some failed, they stay as they are, with the reasons.
    """
    found = Completion(terms)
    completed_terms: list[Term] = []
    parts: dict[Quantity, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for term in terms:
        tuple_id = term.record.operator_tuple.tuple_id
        try:
            predicted = {} if term.row else target.predictions(term.record)
        except Unpredictable as why:
            term, predicted = replace(term, refusal=str(why)), {}
        if predicted:
            found.predictions[tuple_id] = {name: each for name, (_, each) in predicted.items()}
            costs = {quantity: each.cost.value for quantity, (_, each) in predicted.items()}
            term = replace(term, row=_row(tuple_id, costs, predicted[TIME][1].nearest[0]))
        completed_terms.append(term)
        for quantity, (predictor, each) in predicted.items():
            parts[quantity][id(predictor)].append((predictor, term.calls, each))
    if not all(term.known for term in completed_terms):
        pairs = zip(terms, completed_terms, strict=True)
        return Completion([replace(old, refusal=new.refusal) for old, new in pairs])
    for quantity, of_predictors in parts.items():
        found.ranges[quantity] = _range(list(of_predictors.values()))
    return replace(found, terms=completed_terms)


def _reach(prediction: Prediction) -> float:
    assert prediction.cost.high is not None
    return math.log(prediction.cost.high / prediction.cost.value)


def _range(of_predictors: Sequence[Sequence[tuple[Predictor, int, Prediction]]]) -> Range:
    """The limits of the 95 % interval of a sum, relative to it, as if the errors of all predictions
    were one. The lower one is no less than the device could do at best.
    """
    halves, sums, bests = [], [], []
    for parts in of_predictors:
        summands = [(calls, each) for _, calls, each in parts]
        halves.append(parts[0][0].error_of_sum(summands))
        sums.append(sum(calls * each.cost.value for calls, each in summands))
        bests.append(sum(calls * each.best for calls, each in summands))
    half = float(np.average(halves, weights=sums))
    return max(math.exp(-half), sum(bests) / sum(sums)), math.exp(half)


def _row(tuple_id: str, costs: Mapping[Quantity, float], nearest: Row) -> dict[str, Any]:
    """A row as if measured: with these costs, and all else as in the nearest row. Errors are in
    that of the sum.
    """
    columns: dict[str, Any] = dict.fromkeys(
        name for each in (*MEASURED, ENERGY) for name in (*each.names, each.runs, each.run_errors)
    )
    if ENERGY in costs:
        costs = {**costs, POWER: costs[ENERGY] / costs[TIME]}
    for quantity, value in costs.items():
        columns |= quantity.columns(Estimate(value, value, value))
    columns |= HOST_TIME.columns(HOST_TIME.read(nearest))
    waits = [WAITS_FOR_DEVICE] if WAITS_FOR_DEVICE in (nearest["flags"] or ()) else []
    own = {"tuple_id": tuple_id, "status": "ok", "error": None, "flags": [PREDICTED, *waits]}
    reason = None if ENERGY in costs else nearest["energy_reason"] or "it is not predicted"
    return {**nearest, **columns, **own, "energy_reason": reason}
