"""What an iteration and a sample cost: the figures that come first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opcost.costs.terms import Row
from opcost.rows.flags import DISTURBED
from opcost.rows.quantities import COMPARED, ENERGY, TIME, Quantity
from opcost.statistics import Estimate
from opcost.text import digits, is_too_noisy, percent, significant, with_interval, with_values

ESTIMATED = " (estimate)"
"""Follows an estimate where the model was not measured end to end."""

_DISTURBED = " (disturbed)"
"""Follows a time of which other programs disturbed every run: its interval is too narrow."""
RUNS = "end_to_end_runs_s"
"""Not a column: seconds of each end-to-end run that counts, where they are known."""

_NOTHING = "-"


@dataclass(frozen=True)
class Headline:
    """A model's cost of an iteration: measured end to end, or else the estimate.

    It is said to be an estimate where it should have been measured, and `disturbed` if every run
    was. `batch_size` is None if unknown; `runs` are what each end-to-end run found, if known.
    """

    time: Estimate | None
    energy: Estimate | None
    time_is_estimate: bool
    energy_is_estimate: bool
    batch_size: int | None
    runs: Mapping[Quantity, Sequence[float]] = field(default_factory=dict)
    disturbed: bool = False
    predicted_share: float = 0.0

    def cost(self, quantity: Quantity) -> Estimate | None:
        """Of an iteration."""
        return self.time if quantity == TIME else self.energy

    def is_estimate(self, quantity: Quantity) -> bool:
        """Whether the cost is an estimate where it should have been measured."""
        is_estimate = self.time_is_estimate if quantity == TIME else self.energy_is_estimate
        return is_estimate and self.cost(quantity) is not None

    def mark(self, quantity: Quantity) -> str:
        """What follows the cost of an estimate, and a disturbed time."""
        if self.is_estimate(quantity):
            share = self.predicted_share
            return f" (estimate, {percent(share)} predicted)" if share else ESTIMATED
        return _DISTURBED if quantity == TIME and self.time and self.disturbed else ""

    def shown(self, quantity: Quantity) -> str:
        """`cost` with its interval and its mark, or a dash."""
        runs = self.runs.get(quantity, ())
        return with_interval(self.cost(quantity), quantity.show, runs) + self.mark(quantity)

    def per_sample(self, quantity: Quantity) -> float | None:
        """Seconds or joules of a sample; None if unknown or too noisy."""
        cost = self.cost(quantity)
        if cost is None or not self.batch_size or is_too_noisy(cost):
            return None
        return cost.value / self.batch_size

    def rate(self, quantity: Quantity) -> float | None:
        """Samples for each second or joule."""
        sample = self.per_sample(quantity)
        return 1 / sample if sample else None

    def shown_sample(self, quantity: Quantity) -> str:
        """`per_sample` with as many digits as the interval allows, or a dash."""
        value = self.per_sample(quantity)
        return _NOTHING if value is None else quantity.show(value, digits(self.cost(quantity)))

    def shown_rate(self, quantity: Quantity) -> str:
        """`rate` with as many digits as the interval allows, or a dash."""
        value = self.rate(quantity)
        return _NOTHING if value is None else significant(value, digits(self.cost(quantity)))


def of_each(cost: Estimate | None, samples: int | None) -> Estimate | None:
    """The cost of one of so many samples; None if one of the two is unknown."""
    return cost.times(1 / samples) if cost and samples else None


def headline(compared: Row) -> Headline:
    """The headline of a row of the comparison, or of an explanation, without a reference."""
    time, energy = (quantity.of("end_to_end").read(compared) for quantity in COMPARED)
    return Headline(
        time or TIME.of("estimate").read(compared),
        energy or ENERGY.of("estimate").read(compared),
        time is None and compared["end_to_end_measurements"] is not None,
        energy is None and compared["end_to_end_measurements"] is not None,
        compared["batch_size"],
        {TIME: compared.get(RUNS) or ()} if time else {},
        bool(time) and DISTURBED in (compared.get("end_to_end_flags") or ()),
        compared.get("predicted_share") or 0.0,
    )


def known_as(compared: Row, quantity: Quantity = TIME) -> str:
    """Whether a cost is `measured` end to end, or an `estimate`; a dash if it is unknown."""
    if compared[quantity.of("end_to_end").value] is not None:
        return "measured"
    return _NOTHING if compared[quantity.of("estimate").value] is None else "estimate"


def source(compared: Row, quantity: Quantity = TIME) -> str:
    """Where a cost is from (`known_as`), or how much of an estimate is predicted."""
    found, share = known_as(compared, quantity), compared["predicted_share"]
    return f"{percent(share)} predicted" if found == "estimate" and share else found


def cost_cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Title -> text of each row, for a table. Titles that say nothing for any row are left out."""
    headlines = [headline(row) for row in rows]
    has_batches = any((each.batch_size or 1) > 1 for each in headlines)
    cells = [
        {
            "time": each.shown(TIME),
            "time/sample": each.shown_sample(TIME) if has_batches else _NOTHING,
            "samples/s": each.shown_rate(TIME),
            "energy": each.shown(ENERGY),
            "energy/sample": each.shown_sample(ENERGY),
        }
        for each in headlines
    ]
    return with_values(cells, ["time"])
