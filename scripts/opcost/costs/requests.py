"""What a request to a language model costs, from its prefill and its steps of decoding.

Costs of steps that were not measured are interpolated: they are estimates, never rows of a
database.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opcost import statistics
from opcost.costs.interpolation import Interpolation, mean_weights
from opcost.costs.shares import OVERHEAD_COLUMN
from opcost.costs.terms import Row, by_target
from opcost.models.generation import Generation
from opcost.rows.quantities import COMPARED, Quantity
from opcost.statistics import Estimate, correlated_sum

PREFILL, DECODE = "prefill", "decode"
"""The phases of a request."""

_ADDED = ("time_s", "energy_j", "partial_time_s", "partial_energy_j", "flops", "bytes")


@dataclass(frozen=True)
class Request:
    """A request on a target. `rows` are those of the comparison, by model."""

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
        """The relative difference between sum and whole, of what is not interpolated."""
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
        """The cost of a request by module and phase, from that of all models."""
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
        """Rows of all models with the same keys as one, its amounts those of a request."""
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
    """The column with what interpolation contributes to the interval of a token's cost."""
    return f"{quantity}_interpolation_half_width"


def requests_in(generations: Iterable[Generation], comparison: Iterable[Row]) -> list[Request]:
    """The requests of which all steps are in rows of the comparison, for each target."""
    return [
        Request(generation, target, rows)
        for target, rows in by_target(comparison).items()
        for generation in generations
        if rows.keys() >= set(generation.models)
    ]


def _read(row: Row, quantity: Quantity) -> Estimate | None:
    return quantity.read(row) if quantity.value in row else None


def _rounded(value: float | None, whole: bool) -> float | None:
    return round(value) if whole and value is not None else value
