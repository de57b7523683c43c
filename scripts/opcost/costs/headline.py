"""What an iteration and a sample cost: the figures that come first."""

from collections.abc import Sequence
from dataclasses import dataclass

from opcost.costs.terms import Row
from opcost.rows.quantities import COMPARED, ENERGY, TIME, Quantity
from opcost.statistics import Estimate
from opcost.text import significant, with_interval

ESTIMATED = " (sum)"
"""Follows an estimate where the whole model was not measured."""

_NOTHING = "-"
_DIGITS = 3


@dataclass(frozen=True)
class Headline:
    """A model's cost of an iteration: of the measured whole model, or else the estimate.

    It is said to be an estimate where the whole should have been measured. `batch_size` is None if
    unknown.
    """

    time: Estimate | None
    energy: Estimate | None
    time_is_estimate: bool
    energy_is_estimate: bool
    batch_size: int | None

    @property
    def samples_per_s(self) -> float | None:
        """Throughput."""
        return self._per(self.time)

    @property
    def samples_per_j(self) -> float | None:
        """Samples for each joule."""
        return self._per(self.energy)

    def _per(self, cost: Estimate | None) -> float | None:
        if cost is None or not cost.value or self.batch_size is None:
            return None
        return self.batch_size / cost.value

    def per_sample(self, quantity: Quantity) -> float | None:
        """Seconds or joules of a sample."""
        cost = self.time if quantity == TIME else self.energy
        return None if cost is None or not self.batch_size else cost.value / self.batch_size


def headline(compared: Row) -> Headline:
    """The headline of a row of the comparison, or of an explanation, without a reference."""
    time, energy = (_reference(compared, quantity) for quantity in COMPARED)
    return Headline(
        time or TIME.of("estimate").read(compared),
        energy or ENERGY.of("estimate").read(compared),
        time is None and TIME.of("reference").value in compared,
        energy is None and ENERGY.of("reference").value in compared,
        compared["batch_size"],
    )


def cost_cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Title -> text of each row, for a table. Titles that say nothing for any row are left out."""
    headlines = [headline(row) for row in rows]
    has_batches = any((each.batch_size or 1) > 1 for each in headlines)
    cells = [
        {
            "time": _cost(each.time, TIME, each.time_is_estimate),
            "time/sample": _sample(each, TIME) if has_batches else _NOTHING,
            "samples/s": _rate(each.samples_per_s),
            "energy": _cost(each.energy, ENERGY, each.energy_is_estimate),
            "energy/sample": _sample(each, ENERGY),
        }
        for each in headlines
    ]
    shown = [
        title
        for title in (cells[0] if cells else ())
        if title == "time" or any(row[title] != _NOTHING for row in cells)
    ]
    return [{title: row[title] for title in shown} for row in cells]


def _reference(compared: Row, quantity: Quantity) -> Estimate | None:
    reference = quantity.of("reference")
    return reference.read(compared) if reference.value in compared else None


def _cost(cost: Estimate | None, quantity: Quantity, is_estimate: bool) -> str:
    if cost is None:
        return _NOTHING
    return with_interval(cost, quantity.show) + (ESTIMATED if is_estimate else "")


def _sample(each: Headline, quantity: Quantity) -> str:
    value = each.per_sample(quantity)
    return _NOTHING if value is None else quantity.show(value, _DIGITS)


def _rate(value: float | None) -> str:
    return _NOTHING if value is None else significant(value, _DIGITS)
