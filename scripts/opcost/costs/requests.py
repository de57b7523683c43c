"""The cost of a request to a language model: a weighted sum of its prefill and of the steps of
decoding that were measured.

Costs of steps that were not measured are interpolated: they are never rows of a database.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opcost import statistics
from opcost.costs.breakdown import breakdown, shares_text
from opcost.costs.headline import ESTIMATED
from opcost.costs.interpolation import interpolation_half_width, mean_cost, mean_weights
from opcost.costs.shares import OVERHEAD_COLUMN
from opcost.costs.terms import Row, by_target
from opcost.models.generation import Generation
from opcost.rows.quantities import COMPARED, ENERGY, TIME, Quantity
from opcost.statistics import Estimate, correlated_sum
from opcost.text import (
    difference,
    digits,
    is_too_noisy,
    margin,
    significant,
    table_of,
    with_interval,
    with_values,
    wrapped,
)

PREFILL, DECODE = "prefill", "decode"
"""The phases of a request."""

ESTIMATE, END_TO_END = "estimate", "end_to_end"
"""How a cost is known."""

_ADDED = ("time_s", "energy_j", "partial_time_s", "partial_energy_j", "calls", "flops", "bytes")
_INTEGERS = ("calls", "flops", "bytes")
_COUNTED = ("tuples", "measured_tuples", "predicted_tuples")
_COSTLIEST = 5
_NOTHING = "-"
_UNCERTAIN_DIGITS = 2
_UNKNOWN_ERROR = "by an unknown error (± ?): measure a third length (generation.cache_lengths)"
TITLE = "Requests: a prompt, whose prefill makes the first token, and a step for each further token"

ByModel = Mapping[str, Sequence[Row]]
"""Model -> its rows of a table."""
_Weighted = tuple[float, Row]
"""How often a row counts in a request, and the row."""


@dataclass(frozen=True)
class Request:
    """A request on a target, with the rows of the comparison by model."""

    generation: Generation
    target: str
    rows: Mapping[str, Row]

    @cached_property
    def weights(self) -> dict[str, float]:
        """Model -> how often it counts in a request."""
        lengths, steps = self.generation.cache_lengths, self.generation.steps
        weights = [1.0, *(len(steps) * each for each in mean_weights(lengths, steps))]
        return dict(zip(self.generation.models, weights, strict=True))

    def parts(self, quantity: Quantity, source: str) -> dict[str, Estimate | None]:
        """The cost of the prefill, which makes the first token, the mean of a further one of each
        sequence, and all tokens of all sequences: by the suffix of their columns.
        """
        prefill, *steps = self.generation.models
        found, costs = (self._costs(each, quantity.of(source)) for each in ([prefill], steps))
        first = token = total = None
        if found is not None:
            [first] = found
        if costs is not None:
            shape = self._costs(steps, quantity.of(ESTIMATE))
            lengths = self.generation.cache_lengths
            token = mean_cost(lengths, costs, self.generation.steps, shape)
        if first is not None and token is not None:
            total = correlated_sum([(1, first), (len(self.generation.steps), token)])
        return {"": total, "_prefill": first, "_token": token}

    def difference(self, quantity: Quantity) -> Estimate | None:
        """The relative difference of estimate and measurement, without interpolated steps."""
        estimates, measured = (
            self._costs(self.weights, quantity.of(source)) for source in (ESTIMATE, END_TO_END)
        )
        if estimates is None or measured is None:
            return None
        weights = self.weights.values()
        sums = (correlated_sum(zip(weights, each, strict=True)) for each in (estimates, measured))
        return statistics.ratio(*sums).plus(-1)

    def reason(self, quantity: Quantity) -> str | None:
        """Why a cost is null, or None."""
        named = f"{quantity}_reason"
        reasons = ((name, self.rows[name][named]) for name in self.weights)
        return next((f"{name}: {reason}" for name, reason in reasons if reason), None)

    @property
    def interpolation(self) -> str | None:
        """Which steps were measured, and how far off the time of the others may be; None if all
        were measured, or none has a time.
        """
        lengths, (_, *steps) = self.generation.cache_lengths, self.generation.models
        costs = self._costs(steps, TIME.of(ESTIMATE)) or self._costs(steps, TIME.of(END_TO_END))
        number = len(self.generation.steps)
        if costs is None or number <= len(lengths):
            return None
        half = interpolation_half_width(lengths, costs)
        by = _UNKNOWN_ERROR if half is None else f"to within {margin(half)}"
        return (
            f"of its {number} steps, {len(lengths)} were measured, at "
            f"{', '.join(map(str, lengths))} cached tokens; the others are interpolated, {by}"
        )

    def columns(self) -> dict[str, Any]:
        """The row of the request."""
        generation = self.generation
        columns: dict[str, Any] = {
            "model": generation.name,
            "target": self.target,
            "batch_size": generation.batch_size,
            "prompt_tokens": generation.prompt_tokens,
            "new_tokens": generation.new_tokens,
            "interpolation": self.interpolation,
        }
        for quantity in COMPARED:
            for source in (ESTIMATE, END_TO_END):
                for part, cost in self.parts(quantity, source).items():
                    columns |= quantity.of(f"{source}{part}").columns(cost)
            columns |= quantity.error.columns(self.difference(quantity))
            columns[f"{quantity}_reason"] = self.reason(quantity)
        rows = [(weight, self.rows[name]) for name, weight in self.weights.items()]
        return columns | _totals(rows, ("flops", OVERHEAD_COLUMN, "idle_time_s"))

    def operators(self, shares: ByModel) -> list[dict[str, Any]]:
        """The cost of a request by operator and phase, largest first, from the shares of its
        models.
        """
        groups = self._groups(shares, ("operator", "launches_kernel"))
        return _costliest_first([key | _totals(rows, _ADDED) for key, rows in groups])

    def modules(self, modules: ByModel) -> list[dict[str, Any]]:
        """The cost of a request by module and phase, largest first, from the modules of its
        models.
        """
        return _costliest_first(
            [
                key | _totals(rows, (*_ADDED, OVERHEAD_COLUMN)) | _calls_by_tuple(rows)
                for key, rows in self._groups(modules, ("module_path", "module_class"))
            ]
        )

    def _costs(self, models: Iterable[str], quantity: Quantity) -> list[Estimate] | None:
        """The costs of these models, or None if one is unknown."""
        found = [quantity.read(self.rows[name]) for name in models]
        known = [each for each in found if each is not None]
        return known if len(known) == len(found) else None

    def _groups(
        self, by_model: ByModel, keys: Sequence[str]
    ) -> list[tuple[dict[str, Any], list[_Weighted]]]:
        """The rows with the same keys in the same phase of a request."""
        groups: dict[tuple[Any, ...], list[_Weighted]] = defaultdict(list)
        for model, weight in self.weights.items():
            phase = PREFILL if model == self.generation.prefill else DECODE
            for row in by_model.get(model, ()):
                groups[(*(row[key] for key in keys), phase)].append((weight, row))
        return [
            (dict(zip((*keys, "phase"), group, strict=True)) | _tuples(rows), rows)
            for group, rows in groups.items()
        ]


def _totals(rows: Sequence[_Weighted], names: Iterable[str]) -> dict[str, Any]:
    """Columns added up over a request, each None if one of its values is."""
    totals: dict[str, Any] = {}
    for name in names:
        values = [(weight, row.get(name)) for weight, row in rows]
        known = [weight * value for weight, value in values if value is not None]
        total = math.fsum(known) if len(known) == len(values) else None
        totals[name] = round(total) if name in _INTEGERS and total is not None else total
    return totals


def _tuples(rows: Sequence[_Weighted]) -> dict[str, int]:
    return {name: sum(row[name] for _, row in rows) for name in _COUNTED}


def _calls_by_tuple(rows: Sequence[_Weighted]) -> dict[str, Any]:
    """The calls of a module in a request by tuple: modules with the same calls are alike."""
    calls: dict[str, float] = defaultdict(float)
    for weight, row in rows:
        for tuple_id, count in zip(row["tuple_ids"], row["tuple_calls"], strict=True):
            calls[tuple_id] += weight * count
    return {"tuple_ids": list(calls), "tuple_calls": list(map(round, calls.values()))}


def _costliest_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["partial_time_s"] or 0.0, reverse=True)


def requests_in(generations: Iterable[Generation], comparison: Iterable[Row]) -> list[Request]:
    """The requests of which all steps are in rows of the comparison, for each target."""
    return [
        Request(generation, target, rows)
        for target, rows in by_target(comparison).items()
        for generation in generations
        if rows.keys() >= set(generation.models)
    ]


def request_cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Title -> text of each row, for a table. Titles without a value in any row are left out."""
    several = len({row["target"] for row in rows}) > 1
    cells = [
        {
            "request": row["model"],
            **({"target": row["target"]} if several else {}),
            "batch": _NOTHING if row["batch_size"] == 1 else str(row["batch_size"]),
            "tokens": f"{row['prompt_tokens']} + {row['new_tokens']}",
            "first token": _cost(row, TIME, "_prefill"),
            "each further": _cost(row, TIME, "_token"),
            "time": _cost(row, TIME),
            "tokens/s": _rate(row),
            "energy of the first": _cost(row, ENERGY, "_prefill"),
            "of each further": _cost(row, ENERGY, "_token"),
            "energy": _cost(row, ENERGY),
            "estimate - end-to-end": difference(TIME.error.read(row)),
            "of energy": difference(ENERGY.error.read(row)),
        }
        for row in rows
    ]
    return with_values(cells)


def request_lines(requests: Sequence[Request], shares: Sequence[Row]) -> list[str]:
    """The requests as text, broken down by the `shares` of their steps; empty without any."""
    if not requests:
        return []
    of_targets: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in shares:
        of_targets[row["target"]][row["model"]].append(row)
    rows = [each.columns() for each in requests]
    operators = [each.operators(of_targets[each.target]) for each in requests]
    lines = [f"{TITLE}:", "", *table_of(request_cells(rows))]
    for quantity in COMPARED:
        parts = [
            f"{row['model']}: {text}"
            for row, each in zip(rows, operators, strict=True)
            if (text := shares_text(breakdown(row, each, quantity), _COSTLIEST))
        ]
        if parts:
            lines += ["", f"Where the {quantity} of a request goes:", *wrapped(parts, "  ")]
    return [*lines, "", *wrapped(request_notes(rows))]


def request_notes(rows: Sequence[Row]) -> list[str]:
    """The error of interpolated steps, and the reasons of missing costs."""
    notes = []
    for row in rows:
        if row["interpolation"]:
            notes.append(f"{row['model']}: {row['interpolation']}.")
        for quantity in COMPARED:
            reason = row[f"{quantity}_reason"]
            if reason and (quantity == TIME or reason != row[f"{TIME}_reason"]):
                estimated, measured = (
                    quantity.of(source).read(row) for source in (ESTIMATE, END_TO_END)
                )
                what = "end-to-end " if estimated else "estimate of " if measured else ""
                notes.append(f"No {what}{quantity} of {row['model']}: {reason}.")
    return list(dict.fromkeys(notes))


def _part(row: Row, quantity: Quantity, part: str = "") -> tuple[Estimate, bool] | None:
    """The cost of a part, and whether it is an estimate: end to end if all steps were measured, so
    that the parts of a row add up.
    """
    measured = quantity.of(END_TO_END).read(row) is not None
    source = END_TO_END if measured else ESTIMATE
    found = quantity.of(f"{source}{part}").read(row)
    return None if found is None else (found, not measured)


def _cost(row: Row, quantity: Quantity, part: str = "") -> str:
    found = _part(row, quantity, part)
    if found is None:
        return _NOTHING
    cost, is_estimate = found
    shown = with_interval(cost, quantity.show)
    if cost.low is None:
        shown = f"{quantity.show(cost.value, _UNCERTAIN_DIGITS)} ± ?"
    return shown + (ESTIMATED if is_estimate else "")


def _rate(row: Row) -> str:
    found = _part(row, TIME)
    if found is None:
        return _NOTHING
    cost, _ = found
    if is_too_noisy(cost):
        return _NOTHING
    tokens = row["batch_size"] * row["new_tokens"]
    shown = _UNCERTAIN_DIGITS if cost.low is None else digits(cost)
    return significant(tokens / cost.value, shown)
