"""Quantities: numbers with a 95 % interval, and the three columns that hold each of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from opcost.models.definition import COMPARED_PHASES
from opcost.statistics import Estimate
from opcost.text import joules, seconds, watts, with_interval

_SHOWN = {"s": seconds, "j": joules, "w": watts}
"""Unit -> how a number of it is shown."""

_PRODUCTS = {"js": "J s", "js2": "J s²"}
"""Units of products of energy and time, which have no prefix in text."""


@dataclass(frozen=True)
class Quantity:
    """A number with an interval: `name` and `unit` make the names of its columns."""

    name: str
    unit: str = ""

    def __str__(self) -> str:
        return self.name

    @cached_property
    def value(self) -> str:
        """The column of the number: `time_s`."""
        return self._column("")

    @cached_property
    def low(self) -> str:
        """The column of the interval's lower limit: `time_ci_low_s`."""
        return self._column("_ci_low")

    @cached_property
    def high(self) -> str:
        """The column of the interval's upper limit: `time_ci_high_s`."""
        return self._column("_ci_high")

    @cached_property
    def names(self) -> tuple[str, str, str]:
        """All three columns."""
        return self.value, self.low, self.high

    @cached_property
    def runs(self) -> str:
        """The column with the value of each run: `run_time_s`."""
        return replace(self, name=f"run_{self.name}").value

    @cached_property
    def run_errors(self) -> str:
        """The column with the relative standard error of each run: `run_time_error`."""
        return f"run_{self.name}_error"

    @cached_property
    def run_sd(self) -> str:
        """The column of run-to-run variation on a target: `time_run_sd`."""
        return f"{self.name}_run_sd"

    @cached_property
    def measurement_half(self) -> str:
        """The column with what measurement contributes to an estimate's interval."""
        return f"{self.name}_measurement_half_width"

    @cached_property
    def model_error_half(self) -> str:
        """The column with what the model error contributes to it."""
        return f"{self.name}_model_error_half_width"

    @cached_property
    def symbol(self) -> str:
        """The symbol of the unit."""
        return self.unit if self.unit == "s" else self.unit.upper()

    def of(self, whose: str) -> "Quantity":
        """The same quantity of something else: `end_to_end_time_s`."""
        return replace(self, name=f"{whose}_{self.name}")

    def relative(self, what: str) -> "Quantity":
        """A dimensionless quantity derived from this one: `time_ratio`."""
        return Quantity(f"{self.name}_{what}")

    @property
    def error(self) -> "Quantity":
        """The relative error of an estimate: `time_relative_error`."""
        return self.relative("relative_error")

    def at(self, side: str) -> str:
        """The column of the number in one of two rows: `time_before_s`."""
        return self._column(f"_{side}")

    def columns(self, estimate: Estimate | None) -> dict[str, float | None]:
        """The columns of an estimate; null without one."""
        if estimate is None:
            return dict.fromkeys(self.names)
        return {self.value: estimate.value, self.low: estimate.low, self.high: estimate.high}

    def read(self, row: Mapping[str, Any]) -> Estimate | None:
        """The estimate in a row, or None if it has none."""
        if row[self.value] is None:
            return None
        return Estimate(row[self.value], row[self.low], row[self.high])

    def show(self, value: float, digits: int = 4) -> str:
        """A number as text, to so many digits."""
        if self.unit in _PRODUCTS:
            return f"{value:.{digits}g} {_PRODUCTS[self.unit]}"
        return _SHOWN[self.unit](value, digits)

    def shown(self, row: Mapping[str, Any]) -> str:
        """The quantity of a row as text, with its interval."""
        return with_interval(self.read(row), self.show, row.get(self.runs) or ())

    def _column(self, limit: str) -> str:
        return f"{self.name}{limit}{self.unit and '_'}{self.unit}"


def quantity_of(column: str) -> Quantity:
    """The quantity whose number a column has."""
    name, _, unit = column.rpartition("_")
    return Quantity(name, unit) if unit in (*_SHOWN, *_PRODUCTS) else Quantity(column)


def is_limit(column: str) -> bool:
    """Whether a column has a limit of an interval."""
    return "_ci_low" in column or "_ci_high" in column


TIME, POWER, ENERGY = Quantity("time", "s"), Quantity("power", "w"), Quantity("energy", "j")

HOST_TIME = Quantity("host_time", "s")
"""The host's time to launch what a device takes `TIME` to run."""

PHASE_TIMES = {phase: TIME.of(phase) for phase in COMPARED_PHASES}
"""Phase of a training step -> its time in the whole step; the loss is in forward."""

CALL_TIME = Quantity("call_time", "s")
"""The time of a call where it happens, inside the running model."""

EDP, ED2P = Quantity("edp", "js"), Quantity("ed2p", "js2")
"""Energy-delay product: joules times seconds; and energy times the square of the time."""

PREDICTION = TIME.relative("prediction_ratio")
"""The estimated time over the actual one, as far as predictions are off."""

COMPARED = (TIME, ENERGY)
"""The quantities of estimates and references."""

MEASURED = (TIME, HOST_TIME, POWER)
"""The quantities that each run of an operator measures; energy follows from them."""

OVERHEADS = {
    kind: Quantity(f"{kind}_overhead", "s")
    for kind in (
        *("call", "cold_call", "view_call"),
        *("forward_call", "backward_call", "optimizer_call"),
        *("backward_start", "optimizer_start"),
    )
}
"""Kind of call, or start of a phase -> its call overhead."""
