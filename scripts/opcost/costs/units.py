"""The cost of an amount of work in the user's units: money and CO2e beside seconds and joules."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf, ulp
from typing import Any

from opcost import text
from opcost.costs.headline import headline, source
from opcost.costs.terms import Row
from opcost.errors import OpcostError
from opcost.groups import grouped
from opcost.rows.quantities import COMPARED, ENERGY, TIME, Quantity
from opcost.statistics import Estimate, correlated_sum

_J_PER_WH, _J_PER_KWH = 3600.0, 3.6e6
_PRICE, _CARBON = Quantity("price"), Quantity("carbon", "g")
_RANGES = {
    "number": (ulp(0.0), inf, "a finite number above 0 (--per '1000 images')"),
    "price_per_kwh": (ulp(0.0), inf, "a finite number above 0"),
    "carbon_g_per_kwh": (0.0, inf, "a finite number from 0"),
    "pue": (1.0, inf, "a finite number from 1"),
    "duty": (ulp(0.0), 1.0, "a number above 0, up to 1"),
}
_PRICE_PER_KWH = re.compile(r"([^\d.,+-]*)(\d*\.?\d+(?:e[+-]?\d+)?)([^\d.,/]*)/ *kwh", re.I)


@dataclass(frozen=True)
class Factors:
    """An amount of work and the user's factors; None is not applied.

    `price_per_kwh` is in any `currency`, `carbon_g_per_kwh` in grams of CO2e. `pue` is the energy
    of the data centre divided by that of its devices; `duty` the share of the time in which the
    device works, and is not idle. Raises OpcostError for numbers out of range.
    """

    number: float
    what: str = "samples"
    price_per_kwh: float | None = None
    currency: str = ""
    carbon_g_per_kwh: float | None = None
    pue: float | None = None
    duty: float | None = None

    def __post_init__(self) -> None:
        """Raise OpcostError for numbers out of range."""
        for name, (least, most, allowed) in _RANGES.items():
            value = getattr(self, name)
            fits = isinstance(value, float | int) and least <= value <= most and value < inf
            if not fits and (value is not None or name == "number"):
                raise OpcostError(f"{name} is {value!r}; allowed: {allowed}")

    def __str__(self) -> str:
        """The amount of work, such as `1000 images`."""
        return f"{self.number:.15g} {self.what}"


@dataclass(frozen=True)
class WorkCost:
    """What an amount of work costs on a target, as a multiple of the cost of `samples` of it.

    `time` is in seconds of the working device; `energy` in gross joules of the device, with idle
    energy if it has a duty; `price` in the currency and `carbon` in grams of CO2e, both with the
    PUE. `reason` is why there is no energy. `source` is as in `opcost explain`.
    """

    factors: Factors
    target: str
    samples: int
    source: str
    time: Estimate | None
    energy: Estimate | None
    price: Estimate | None
    carbon: Estimate | None
    reason: str | None
    idle_power_w: float | None

    def to_document(self) -> dict[str, Any]:
        """The cost as JSON data, with all factors."""
        names = ("samples", "source", "reason", "idle_power_w")
        costs = {TIME: self.time, ENERGY: self.energy, _PRICE: self.price, _CARBON: self.carbon}
        document = asdict(self.factors) | {name: getattr(self, name) for name in names}
        for quantity, cost in costs.items():
            document |= quantity.columns(cost)
        return document

    def __str__(self) -> str:
        """The cost on one line, with all factors."""
        parts = ", ".join([text.with_interval(self.time, TIME.show), *self._energy_parts()])
        return f"{self.factors} on {self.target}: {parts} ({self.source})"

    def _energy_parts(self) -> list[str]:
        given, energy = self.factors, self.energy
        if energy is None or text.is_too_noisy(energy):
            return [] if energy is None else [f"energy {text.TOO_NOISY}"]
        joules = text.with_interval(energy, ENERGY.show)
        if self.idle_power_w is not None:
            joules += f" at duty {given.duty:g}, idle at {text.watts(self.idle_power_w, 3)}"
        sites = [energy.value / _J_PER_WH * each for each in (1, given.pue or 1)]
        device, site = (text.prefixed(each, "Wh", text.digits(energy)) for each in sites)
        parts = [joules, f"{device} x PUE {given.pue:g} = {site}" if given.pue else device]
        if self.price is not None:
            unit = f" {given.currency}".rstrip()
            price = text.with_interval(self.price, lambda x, n: text.significant(x, n) + unit)
            parts.append(f"{'' if unit else 'price '}{price} at {given.price_per_kwh:g}{unit}/kWh")
        if self.carbon is not None:
            carbon = text.with_interval(self.carbon, lambda x, n: text.prefixed(x, "g CO2e", n))
            parts.append(f"{carbon} at {given.carbon_g_per_kwh:g} g/kWh")
        return parts


_MULTIPLES = ("dozen", "hundred", "thousand", "million", "billion", "k", "m")
_DURATIONS = ("second", "minute", "hour", "day", "month", "year")


def parse_factors(work: str, word: str, price: str | None, **others: float | None) -> Factors:
    """The factors of a text such as `1000 images`, or a number of `word`, and one such as
    `0.30 EUR/kWh`, with `others`. Raises OpcostError.
    """
    number, _, what = work.strip().partition(" ")
    match = None if price is None else _PRICE_PER_KWH.fullmatch(price.strip())
    if price is not None and (match is None or not float(match[2])):
        raise OpcostError(f"{price!r} is not a price: write 0.30/kWh or '0.30 EUR/kWh'")
    per_kwh, currency = (float(match[2]), f"{match[1]}{match[3]}".strip()) if match else (None, "")
    first = what.strip().partition(" ")[0].lower()
    if first in _MULTIPLES or first.startswith(_DURATIONS):
        raise OpcostError(f"{work!r} does not count things: write a number, such as '1000 images'")
    try:
        return Factors(float(number), what.strip() or word, per_kwh, currency, **others)
    except ValueError:
        raise OpcostError(f"{work!r} has no number: write --per '1000 images'") from None


def work_cost(row: Row, factors: Factors, samples: int, idle_power_w: float | None) -> WorkCost:
    """The cost of the work, from that of `samples` of it in a row of the comparison or of requests,
    and the watts of the idle device, None if unknown.
    """
    costs = {each: headline(row).cost(each) for each in COMPARED}
    time, energy = (each and each.times(factors.number / samples) for each in costs.values())
    reason = None if energy else row[f"{ENERGY}_reason"]
    idle = 1 / (factors.duty or 1) - 1
    if energy and idle and idle_power_w is None:
        energy, reason = None, "the power of the idle device, which a duty needs, is unknown"
    elif energy and idle and idle_power_w and time:
        energy = correlated_sum([(1, energy), (idle * idle_power_w, time)])
    price, carbon = (
        None
        if each is None or energy is None
        else energy.times(each * (factors.pue or 1) / _J_PER_KWH)
        for each in (factors.price_per_kwh, factors.carbon_g_per_kwh)
    )
    named = {each: source(row, each) for each, cost in costs.items() if cost}
    differ = len({*named.values()}) > 1
    known = dict.fromkeys(f"{each} {how}" if differ else how for each, how in named.items())
    how = ", ".join(known).replace("measured", "measured end to end")
    found = (how, time, energy, price, carbon, reason)
    return WorkCost(factors, row["target"], samples, *found, idle_power_w if idle else None)


def work_lines(costs: Sequence[WorkCost]) -> list[str]:
    """A line for each target that has a time, and what the costs are of."""
    known = [each for each in costs if each.time is not None]
    if not known:
        return [f"No cost of {each.factors}: no target has a time." for each in costs[:1]]
    work, samples = known[0].factors, known[0].samples
    batches = text.significant(work.number / samples, 4)
    notes = [f"Computed as {batches} x {samples} {work.what}."] * (samples > 1)
    if any(each.energy for each in known):
        notes.append("Energy, price and CO2e are the device's alone, without the rest of its host.")
    without = grouped((each.reason, each.target) for each in known if each.reason)
    lines = [f"No energy, price or CO2e on {', '.join(on)}: {why}." for why, on in without.items()]
    return text.wrapped([*map(str, known), " ".join(notes), *lines])
