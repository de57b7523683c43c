"""The first section: what each model costs, as cards, as a table, and by device."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import altair as alt

from opcost.costs.breakdown import OTHERS, Part, breakdown, costliest
from opcost.costs.headline import Headline, headline, of_each
from opcost.costs.module_tree import Branch, module_tree
from opcost.costs.trust import Trust, largest_difference, trust
from opcost.report.colours import Colours
from opcost.report.results import NOTHING, Results, Row
from opcost.report.theme import Figure, dots, from_zero, si_axis
from opcost.rows.quantities import COMPARED, TIME, Quantity
from opcost.text import digits, is_too_noisy, percent, scaled, with_interval

MOST_CARDS = 6
"""More models than these have no cards, but the table alone."""

_OPERATORS, _MODULES = 4, 3
_DEEPEST, _NEARLY_ALL = 3, 0.8
_DIGITS = 3
_UNKNOWN_WIDTH = 12.0


@dataclass(frozen=True)
class Segment:
    """A part of a bar: `width` in per cent of the bar."""

    name: str
    percent: str
    amount: str
    width: float
    colour: str
    is_missing: bool
    is_operator: bool


@dataclass(frozen=True)
class Cost:
    """Time or energy of a model: of an iteration, of a sample, and samples for each unit.

    Each as text and as a number to sort by, or None; at batch size 1, there is no `sample`, which
    is the iteration. `mark` follows the cost of an iteration, `estimate` is the one from operators
    where another one was measured. `segments` are where it goes; `trust` is in them.
    """

    quantity: Quantity
    iteration: str
    value: float | None
    mark: str
    estimate: str | None
    sample: str | None
    rate: str | None
    rate_value: float | None
    segments: list[Segment]
    trust: Trust
    trust_value: float | None


@dataclass(frozen=True)
class Card:
    """A model on a target. `modules` are the costliest: path, class if all have one, share."""

    model: str
    target: str
    inputs: str
    batch_size: int | None
    dtype: str
    costs: list[Cost]
    flops: str | None
    flops_per_s: float | None
    of_fastest: str | None
    modules: list[tuple[str, str, str]]

    @property
    def trusts(self) -> list[tuple[str, Trust]]:
        """(quantity, trust), or one trust of all of them if they are the same."""
        if len({cost.trust for cost in self.costs}) == 1:
            return [("", self.costs[0].trust)]
        return [(cost.quantity.name.capitalize(), cost.trust) for cost in self.costs]

    def cost_of(self, quantity: Quantity) -> Cost | None:
        """Its time or energy."""
        return next((cost for cost in self.costs if cost.quantity == quantity), None)


def cards(results: Results, named: Colours) -> list[Card]:
    """A card for each model and target, those of a model side by side.

    Energy is left out where there is none.
    """
    order = {row["model"]: place for place, row in reversed([*enumerate(results.comparison)])}
    rows = sorted(results.comparison, key=lambda row: order[row["model"]])
    return [_card(results, row, named) for row in rows]


def without_energy(results: Results) -> list[tuple[str, str]]:
    """(target, reason) of each target on which no model's energy was measured."""
    return [
        (target, reason)
        for target in results.targets
        if target not in results.targets_with_energy
        for reason in [next(filter(None, _energy_reasons(results, target)), None)]
        if reason
    ]


def _energy_reasons(results: Results, target: str) -> Iterator[str | None]:
    """Reasons; first those that are not also the reason for which there is no time."""
    rows = results.compared(target)
    yield from (row["energy_reason"] for row in rows if row["energy_reason"] != row["time_reason"])
    yield from results.measured(target)["energy_reason"]


def side_by_side(results: Results) -> Iterator[Figure]:
    """Time and energy of a sample of each model, devices beside each other; none on one device."""
    if len(results.targets) < 2:
        return
    for quantity in COMPARED:
        values = [
            {
                **{name: row[name] for name in ("model", "target", "batch_size")},
                "value": cost.value,
                "low": cost.low,
                "high": cost.high,
                "shown": with_interval(cost, quantity.show),
            }
            for row in results.comparison
            if (cost := of_each(headline(row).cost(quantity), row["batch_size"]))
            and not is_too_noisy(cost)
        ]
        if values:
            scale, ticks = from_zero([each["value"] for each in values])
            axis = si_axis(f"{quantity} of a sample", quantity.symbol, orient="top", **ticks)
            x = alt.X("value:Q", scale=scale, axis=axis)
            title = f"{quantity.name.capitalize()} of a sample by device"
            label = f"{title}, for each model, with 95 % intervals."
            yield dots(values, results.targets, x, title, label, quantity.names)


def _card(results: Results, row: Row, named: Colours) -> Card:
    found = headline(row)
    time = None if is_too_noisy(found.time) else found.time
    flops_per_s = row["flops"] / time.value if row["flops"] and time else None
    ceiling = results.highest_flops_per_s.get((row["target"], row["dtype"]))
    return Card(
        row["model"],
        row["target"],
        row["inputs"] or "",
        row["batch_size"],
        row["dtype"] or "",
        [
            _cost(results, row, quantity, found, named)
            for quantity in COMPARED
            if quantity == TIME or row["target"] in results.targets_with_energy
        ],
        scaled(flops_per_s, "FLOP/s") if flops_per_s else None,
        flops_per_s,
        percent(flops_per_s / ceiling) if flops_per_s and ceiling else None,
        _modules(module_tree(row, results.modules_of(row), most=None)),
    )


def _cost(results: Results, row: Row, quantity: Quantity, found: Headline, named: Colours) -> Cost:
    cost = found.cost(quantity)
    rate = found.rate(quantity)
    estimated = quantity.of("estimate").read(row) if quantity.of("end_to_end").read(row) else None
    predicted = f" ({percent(share)} predicted)" if (share := row["predicted_share"]) else ""
    parts = breakdown(row, results.shares_of(row), quantity)
    return Cost(
        quantity,
        with_interval(cost, quantity.show) if cost else NOTHING,
        cost.value if cost else None,
        found.mark(quantity),
        f"{quantity.show(estimated.value, digits(estimated))}{predicted}" if estimated else None,
        found.shown_sample(quantity) if rate and found.batch_size != 1 else None,
        found.shown_rate(quantity) if rate else None,
        rate,
        _segments(parts, quantity, named),
        trust(row, quantity),
        largest_difference(row, quantity),
    )


def _segments(every: Sequence[Part], quantity: Quantity, named: Colours) -> list[Segment]:
    """Of the costliest parts. Widths add up to 100. A part of unknown size has a fixed width.

    What is not measured is unknown, too, if what is measured takes longer than the model.
    """
    parts = costliest(every, _OPERATORS)
    known = 100.0 if all(part.share is not None for part in parts) else 100.0 - _UNKNOWN_WIDTH
    return [
        Segment(
            part.name,
            percent(part.share) if part.share else "unknown",
            quantity.show(part.amount, _DIGITS) if part.amount else "",
            _UNKNOWN_WIDTH if part.share is None else part.share * known,
            named.of(part.name),
            part.is_rest,
            part.calls is not None and part.name != OTHERS,
        )
        for part in parts
    ]


def _modules(tree: Sequence[Branch]) -> list[tuple[str, str, str]]:
    """The costliest at the first depth at which none has nearly all of the cost."""
    level: list[Branch] = []
    for depth in range(1, _DEEPEST + 1):
        deeper = [each for each in tree if each.depth == depth and each.share and not each.is_rest]
        level = deeper or level
        if max((each.share for each in level), default=0.0) <= _NEARLY_ALL:
            break
    largest = sorted(level, key=lambda branch: -branch.share)[:_MODULES]
    known = all(branch.module_class for branch in largest)
    return [
        (".".join(branch.path), (branch.module_class if known else "") or "", percent(branch.share))
        for branch in largest
    ]
