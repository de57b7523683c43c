"""The cost of a request to a language model, from its prefill and its steps of decoding.

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
from opcost.costs.interpolation import Interpolation, mean_weights
from opcost.costs.shares import OVERHEAD_COLUMN
from opcost.costs.terms import Row, by_target
from opcost.models.generation import Generation
from opcost.rows.quantities import COMPARED, ENERGY, TIME, Quantity
from opcost.statistics import Estimate, correlated_sum
from opcost.text import difference, digits, margin, significant, table, with_interval, wrapped

PREFILL, DECODE = "prefill", "decode"
"""The phases of a request."""

_ADDED = ("time_s", "energy_j", "partial_time_s", "partial_energy_j", "flops", "bytes")
_COSTLIEST = 5
_NOTHING = "-"
_UNCERTAIN_DIGITS = 2
_UNKNOWN_ERROR = "by an unknown error (± ?): measure a third length (generation.cache_lengths)"
TITLE = "Requests: a prompt, whose prefill makes the first token, and a step for each further token"


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
        weights = mean_weights(lengths, steps)
        counted = zip(map(self.generation.step, lengths), weights, strict=True)
        return {self.generation.prefill: 1.0} | {
            name: weight * len(steps) for name, weight in counted
        }

    def prefill(self, quantity: Quantity) -> Estimate | None:
        """The cost of the prompt, with the first new token."""
        return _read(self.rows[self.generation.prefill], quantity)

    def token(self, quantity: Quantity) -> Estimate | None:
        """The mean cost of a further token of each sequence."""
        steps = self._steps(quantity)
        return None if steps is None else steps.mean(self.generation.steps)

    def request(self, quantity: Quantity) -> Estimate | None:
        """The cost of all tokens of all sequences."""
        first, further = self.prefill(quantity), self.token(quantity)
        if first is None or further is None:
            return None
        return correlated_sum([(1, first), (len(self.generation.steps), further)])

    def difference(self, quantity: Quantity) -> Estimate | None:
        """The relative difference of estimate and measurement, without interpolated steps."""
        both = []
        for whose in ("estimate", "end_to_end"):
            known = [_read(self.rows[name], quantity.of(whose)) for name in self.weights]
            if None in known:
                return None
            both.append(
                correlated_sum(zip(self.weights.values(), filter(None, known), strict=True))
            )
        return statistics.ratio(*both).plus(-1)

    def reason(self, quantity: Quantity) -> str | None:
        """Why a cost is null, or None."""
        named = f"{quantity}_reason"
        reasons = ((name, self.rows[name][named]) for name in self.weights)
        return next((f"{name}: {reason}" for name, reason in reasons if reason), None)

    def columns(self) -> dict[str, Any]:
        """The row of the request."""
        generation = self.generation
        columns: dict[str, Any] = {
            "model": generation.name,
            "target": self.target,
            "batch_size": generation.batch_size,
            "prompt_tokens": generation.prompt_tokens,
            "new_tokens": generation.new_tokens,
            "cache_lengths": list(generation.cache_lengths),
        }
        for quantity in COMPARED:
            for whose in ("estimate", "end_to_end"):
                each = quantity.of(whose)
                columns |= each.columns(self.request(each))
                columns |= quantity.of(f"{whose}_prefill").columns(self.prefill(each))
                columns |= quantity.of(f"{whose}_token").columns(self.token(each))
            columns |= quantity.error.columns(self.difference(quantity))
            columns[f"{quantity}_reason"] = self.reason(quantity)
            steps = self._steps(quantity.of("estimate"))
            columns[interpolation_half(quantity)] = steps and steps.half_width
        added = ("calls", "flops", OVERHEAD_COLUMN, "idle_time_s")
        return columns | {
            name: _rounded(self._added(self.rows, name), name in ("calls", "flops"))
            for name in added
        }

    def operators(self, shares: Iterable[Row]) -> list[dict[str, Any]]:
        """The cost of a request by operator and phase, from the shares of all models."""
        return self._grouped(shares, ("operator", "launches_kernel"), _ADDED)

    def modules(self, modules: Iterable[Row]) -> list[dict[str, Any]]:
        """The cost of a request by module and phase, from the modules of all models."""
        keys = ("module_path", "module_class")
        return self._grouped(modules, keys, (*_ADDED, OVERHEAD_COLUMN))

    def _steps(self, quantity: Quantity) -> Interpolation | None:
        known = self._known(quantity)
        if known is None:
            return None
        kind = next(each for each in COMPARED if each.unit == quantity.unit)
        shape = self._known(kind.of("estimate"))
        return Interpolation(self.generation.cache_lengths, known, shape)

    def _known(self, quantity: Quantity) -> list[Estimate] | None:
        """The costs of all measured steps, or None if one is unknown."""
        names = map(self.generation.step, self.generation.cache_lengths)
        costs = [_read(self.rows[name], quantity) for name in names]
        known = [each for each in costs if each is not None]
        return known if len(known) == len(costs) else None

    def _grouped(
        self, rows: Iterable[Row], keys: Sequence[str], added: Sequence[str]
    ) -> list[dict[str, Any]]:
        """Rows of all models with the same keys as one row, with the amounts of a request."""
        groups: dict[tuple[Any, ...], dict[str, Row]] = defaultdict(dict)
        for row in rows:
            if row["target"] == self.target and row["model"] in self.weights:
                phase = PREFILL if row["model"] == self.generation.prefill else DECODE
                groups[(*(row[key] for key in keys), phase)][row["model"]] = row
        found = [
            {
                **dict(zip((*keys, "phase"), group, strict=True)),
                "calls": round(self._added(each, "calls") or 0.0),
                "tuples": sum(row["tuples"] for row in each.values()),
                "measured_tuples": sum(row["measured_tuples"] for row in each.values()),
                **{
                    name: _rounded(self._added(each, name), name in ("flops", "bytes"))
                    for name in added
                },
            }
            for group, each in groups.items()
        ]
        return sorted(found, key=lambda row: row["partial_time_s"] or 0.0, reverse=True)

    def _added(self, rows: Mapping[str, Row], name: str) -> float | None:
        """A column of these models, added up over a request; None if one is null."""
        values = [
            (self.weights[model], row.get(name))
            for model, row in rows.items()
            if model in self.weights
        ]
        if any(value is None for _, value in values):
            return None
        return math.fsum(weight * value for weight, value in values if value is not None)


def interpolation_half(quantity: Quantity) -> str:
    """The column of the interpolation's part of the interval of a token's cost."""
    return f"{quantity}_interpolation_half_width"


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
    shown = [
        title
        for title in (cells[0] if cells else ())
        if any(row[title] != _NOTHING for row in cells)
    ]
    return [{title: row[title] for title in shown} for row in cells]


def request_lines(requests: Sequence[Request], shares: Sequence[Row]) -> list[str]:
    """The requests as text, broken down by the `shares` of their steps; empty without any."""
    if not requests:
        return []
    rows = [each.columns() for each in requests]
    cells = request_cells(rows)
    lines = [f"{TITLE}:", "", *table(list(cells[0]), [list(row.values()) for row in cells])]
    for quantity in COMPARED:
        parts = [
            (
                row["model"],
                shares_text(breakdown(row, request.operators(shares), quantity), _COSTLIEST),
            )
            for row, request in zip(rows, requests, strict=True)
        ]
        if any(text for _, text in parts):
            lines += ["", f"Where the {quantity} of a request goes:"]
            lines += wrapped((f"{model}: {text}" for model, text in parts if text), "  ")
    return [*lines, "", *wrapped(request_notes(rows))]


def request_notes(rows: Sequence[Row]) -> list[str]:
    """The error of interpolated steps, and the reasons of missing costs."""
    notes = []
    for row in rows:
        lengths = row["cache_lengths"]
        if row["new_tokens"] - 1 > len(lengths) and _part(row, TIME, "_token"):
            half = row[interpolation_half(TIME)]
            by = _UNKNOWN_ERROR if half is None else f"to within {margin(half)}"
            notes.append(
                f"{row['model']}: of its {row['new_tokens'] - 1} steps, {len(lengths)} were "
                f"measured, at {', '.join(map(str, lengths))} cached tokens; the others are "
                f"interpolated, {by}."
            )
        for quantity in COMPARED:
            reason = row[f"{quantity}_reason"]
            if reason and (quantity == TIME or reason != row[f"{TIME}_reason"]):
                estimated, measured = (
                    quantity.of(whose).read(row) for whose in ("estimate", "end_to_end")
                )
                what = "end-to-end " if estimated else "estimate of " if measured else ""
                notes.append(f"No {what}{quantity} of {row['model']}: {reason}.")
    return list(dict.fromkeys(notes))


def _part(row: Row, quantity: Quantity, part: str = "") -> tuple[Estimate, bool] | None:
    """The cost of a part, and whether it is an estimate: end to end if all steps were measured, so
    that the parts of a row add up.
    """
    measured = quantity.of("end_to_end").read(row) is not None
    whose = "end_to_end" if measured else "estimate"
    found = quantity.of(f"{whose}{part}").read(row)
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
    tokens = row["batch_size"] * row["new_tokens"]
    shown = _UNCERTAIN_DIGITS if cost.low is None else digits(cost)
    return significant(tokens / cost.value, shown)


def _read(row: Row, quantity: Quantity) -> Estimate | None:
    return quantity.read(row) if quantity.value in row else None


def _rounded(value: float | None, to_integer: bool) -> float | None:
    return round(value) if to_integer and value is not None else value
