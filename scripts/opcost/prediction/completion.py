"""A model's terms, completed by predictions where a target has no rows."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opcost.costs.terms import Row, Term
from opcost.prediction.predictor import Prediction, Predictor, Unpredictable
from opcost.rows.flags import PREDICTED, WAITS_FOR_DEVICE
from opcost.rows.quantities import ENERGY, HOST_TIME, MEASURED, POWER, TIME, Quantity
from opcost.rows.runs import ModelRatio
from opcost.statistics import Estimate


@dataclass
class Completion:
    """The terms of a model; `errors` are as in `ModelEstimate`, `nearest` the measured rows next to
    each predicted tuple, and `refused` why a tuple has no prediction, by tuple id.
    """

    terms: list[Term]
    errors: Mapping[Quantity, float] = field(default_factory=dict)
    nearest: dict[str, Sequence[Row]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def completed(
    terms: Sequence[Term], rows: Sequence[Row], ratios: Sequence[ModelRatio]
) -> Completion:
    """The terms with a prediction for each that has no result. `rows` are all of the target, with
    the columns of an estimate and `predictor.COLUMNS`, `ratios` those of its models.
    """
    calls = {each.model: each.calls for each in ratios if each.calls}
    measured = [row for row in rows if row["status"] == "ok" and row[TIME.value]]
    predictors = [Predictor(measured, TIME, calls)]
    if measured and all(row[ENERGY.value] for row in measured):
        predictors.append(Predictor(measured, ENERGY, calls))
    found = Completion([])
    parts: dict[Quantity, list[tuple[float, Prediction]]] = defaultdict(list)
    for term in terms:
        if term.known:
            found.terms.append(term)
            continue
        tuple_id = term.record.operator_tuple.tuple_id
        try:
            predicted = {each.quantity: each.predict(term.record) for each in predictors}
        except Unpredictable as why:
            found.refused[tuple_id] = str(why)
            found.terms.append(term)
            continue
        for quantity, each in predicted.items():
            parts[quantity].append((term.calls, each))
        found.nearest[tuple_id] = [measured[n] for n in predicted[TIME].nearest]
        row = _row(term, predicted, found.nearest[tuple_id])
        found.terms.append(replace(term, row=row))
    found.errors = {each.quantity: each.error_of_sum(parts[each.quantity]) for each in predictors if parts}
    return found


def _row(
    term: Term, predicted: Mapping[Quantity, Prediction], nearest: Sequence[Row]
) -> dict[str, Any]:
    """A row as if measured: what is predicted, and all else as in the nearest row. Its error is in
    that of the sum.
    """
    base = nearest[0]
    columns: dict[str, Any] = dict.fromkeys(
        name for each in MEASURED for name in (*each.names, each.runs, each.run_errors)
    )
    columns |= ENERGY.columns(None)
    for quantity, each in predicted.items():
        value = each.cost.value
        columns |= quantity.columns(Estimate(value, value, value))
    if ENERGY in predicted:
        watts = columns[ENERGY.value] / columns[TIME.value]
        columns |= POWER.columns(Estimate(watts, watts, watts))
    if base[HOST_TIME.value] is not None:
        columns |= HOST_TIME.columns(HOST_TIME.read(base))
    waits = [WAITS_FOR_DEVICE] if WAITS_FOR_DEVICE in (base["flags"] or ()) else []
    own = {"tuple_id": term.record.operator_tuple.tuple_id, "status": "ok", "error": None}
    return {**base, **columns, **own, "flags": [PREDICTED, *waits]}
