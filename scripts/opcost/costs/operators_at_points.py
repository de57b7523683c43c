"""The cost of each operator at the points of a target's axes: which ones lose nothing at a lower
power limit, or gain nothing from more threads.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opcost import statistics
from opcost.costs.terms import Row, Term, terms_of
from opcost.models.axes import Sweep, described
from opcost.rows.quantities import COMPARED, TIME, Quantity
from opcost.statistics import Estimate
from opcost.text import difference, table, with_interval
from opcost.tuples.model_tuples import ModelTuples
from opcost.tuples.operator_tuple import short_name

_MOST_OPERATORS = 12
_MOST_POINTS = 6


@dataclass(frozen=True)
class Costs:
    """The cost of all calls of an operator on each target of a sweep, in models that all of them
    have. Tuples that are not measured on each target are left out.
    """

    operator: str
    on: Mapping[str, Mapping[Quantity, Estimate | None]]

    def above(self, base: str, target: str, quantity: Quantity) -> Estimate | None:
        """The cost on a target relative to the base, minus 1."""
        found, least = self.on[target][quantity], self.on[base][quantity]
        if found is None or least is None or not least.value:
            return None
        return statistics.ratio(found, least).plus(-1)


def tables(
    sweeps: Iterable[Sweep], models: Mapping[str, Sequence[ModelTuples]], rows: Sequence[Row]
) -> list[list[str]]:
    """The lines of each sweep of targets, from the arguments of `costs`."""
    return [lines(sweep, costs(sweep, models, rows)) for sweep in sweeps]


def costs(
    sweep: Sweep, models: Mapping[str, Sequence[ModelTuples]], rows: Iterable[Row]
) -> list[Costs]:
    """The costs of each operator on the targets of a sweep that have models, slowest on the first
    target first. `models` are by target, `rows` are of operators.
    """
    listed = [target for target in sweep.points if models.get(target)]
    # A model that is missing at one point would make that point look cheaper.
    named = [{model.model for model in models[target]} for target in listed]
    everywhere = set.intersection(*named) if named else set()
    on_target: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        on_target[row["target"]][row["tuple_id"]] = row
    tuples: dict[str, dict[str, dict[str, list[Term]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for target in listed:
        for model in models[target]:
            for term in terms_of(model, on_target[target], set()):
                if model.model in everywhere and term.measured:
                    operator_tuple = term.record.operator_tuple
                    operator = short_name(operator_tuple.operator)
                    tuples[operator][operator_tuple.tuple_id][target].append(term)
    found = []
    for operator, by_tuple in tuples.items():
        common = [terms for terms in by_tuple.values() if len(terms) == len(listed)]
        if common:
            on = {
                target: {
                    quantity: _total(
                        [
                            (sum(term.calls for term in each[target]), each[target][-1].row)
                            for each in common
                        ],
                        quantity,
                    )
                    for quantity in COMPARED
                }
                for target in listed
            }
            found.append(Costs(operator, on))
    return sorted(found, key=lambda each: -_value(each.on[listed[0]][TIME]))


def _total(rows: Iterable[tuple[int, Row | None]], quantity: Quantity) -> Estimate | None:
    read = [(calls, quantity.read(row)) for calls, row in rows if row is not None]
    known = [(float(calls), cost) for calls, cost in read if cost is not None]
    return statistics.weighted_sum(known) if len(known) == len(read) else None


def _value(cost: Estimate | None) -> float:
    return cost.value if cost else 0.0


def lines(sweep: Sweep, operators: Sequence[Costs]) -> list[str]:
    """A table of each quantity: the cost on the fastest target, and the others relative to it."""
    targets = [each for each in sweep.points if operators and each in operators[0].on]
    if len(targets) < 2:
        return []
    base = min(targets, key=lambda target: sum(_value(each.on[target][TIME]) for each in operators))
    others = _some([each for each in targets if each != base])
    found: list[str] = []
    for quantity in COMPARED:
        if all(each.on[base][quantity] is None for each in operators):
            continue
        points = [described(sweep.points[target]) for target in (base, *others)]
        header = ["operator", *points]
        cells = [
            [
                each.operator,
                with_interval(each.on[base][quantity], quantity.show),
                *(difference(each.above(base, target, quantity)) for target in others),
            ]
            for each in operators[:_MOST_OPERATORS]
        ]
        what = f"{str(quantity).capitalize()} of all calls of each operator on {sweep.name}"
        found += ["", f"{what}, and the relative difference at other points:", ""]
        found += table(header, cells)
    return found[1:]


def _some(targets: Sequence[str]) -> list[str]:
    """At most `_MOST_POINTS` targets at even distances, with the first and the last."""
    if len(targets) <= _MOST_POINTS:
        return list(targets)
    last = len(targets) - 1
    places = {round(last * number / (_MOST_POINTS - 1)) for number in range(_MOST_POINTS)}
    return [targets[place] for place in sorted(places)]
