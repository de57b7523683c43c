"""The result of `opcost.explain`: a model's cost on one target, for programs and notebooks."""

import html
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from opcost.costs.breakdown import Part, shares_text, with_rest_of
from opcost.costs.explanation import Explanation
from opcost.costs.explanation_text import as_text
from opcost.costs.memory_use import memory_use
from opcost.costs.module_tree import module_tree
from opcost.costs.units import Factors, WorkCost
from opcost.rows.quantities import ENERGY, TIME
from opcost.statistics import Estimate
from opcost.text import percent, with_interval
from opcost.tuples.model_tuples import ModelTuples

if TYPE_CHECKING:
    import pandas as pd

_NAMED = 3
_DIGITS = 3
_TYPES = {
    **dict.fromkeys(
        ("calls", "depth", "flops", "parameters", "tuples", "measured_tuples", "predicted_tuples"),
        "Int64",
    ),
    **dict.fromkeys(("time_s", "energy_j", "share"), "float64"),
}
_LISTED = 10


class ModelCost:
    """A model's cost on one target of a database.

    `model` has its extracted tuples, `target` and `device` name where its operators were measured,
    and `database` is the file with them. Costs are of one iteration, in seconds and gross joules.
    """

    def __init__(
        self,
        model: ModelTuples,
        found: Sequence[Explanation],
        chosen: Explanation,
        name: str | None = None,
    ):
        self.model = model
        self._name = name
        self._found = found
        self._chosen = chosen

    @property
    def target(self) -> str:
        """The name of the target in the database."""
        return self._chosen.target

    @property
    def device(self) -> str | None:
        """The device's product name; None if none of the operators was measured."""
        return self._chosen.device_name

    @property
    def database(self) -> str:
        """The path of the database."""
        return str(self._chosen.database)

    @property
    def time(self) -> Estimate | None:
        """Estimated seconds; None if an operator is missing. The 95 % interval holds the error of
        the measurements and, if known, the `model_error`.
        """
        return self._chosen.estimate.time

    @property
    def energy(self) -> Estimate | None:
        """Estimated gross joules, with such an interval; None if unknown."""
        return self._chosen.estimate.energy

    @property
    def model_error(self) -> float | None:
        """Half of the 95 % interval of the model error in time, relative; None if no other model
        was measured end to end.
        """
        half: float | None = self._chosen.compared[TIME.model_error_half]
        return half

    @property
    def predicted_share(self) -> float:
        """The share of the operators' time that is predicted, from other tuples of the target."""
        return self._chosen.estimate.predicted_share()

    @property
    def end_to_end_time(self) -> Estimate | None:
        """Seconds measured end to end; None if the database's study does not have the model."""
        measured, compared = TIME.of("end_to_end"), self._chosen.compared
        return measured.read(compared) if measured.value in compared else None

    def per(self, number: float, **factors: Any) -> WorkCost:
        """The cost of so many samples of the batch, measured end to end or else the estimate.

        `factors` are those of `Factors`: `price_per_kwh` and its `currency`, `carbon_g_per_kwh`
        (grams of CO2e), `pue` from 1, and `duty` above 0, up to 1. Raises OpcostError for numbers
        out of range, and if the batch size is unknown.
        """
        return self._chosen.work(Factors(number, **factors))

    @property
    def reason(self) -> str | None:
        """Why there is no time; None if there is one."""
        return self._chosen.estimate.time_reason

    @property
    def energy_reason(self) -> str | None:
        """Why there is no energy; None if there is some."""
        return self._chosen.estimate.energy_reason

    @cached_property
    def _parts(self) -> list[Part]:
        return with_rest_of(self._chosen.parts(ENERGY), self._chosen.parts())

    @cached_property
    def operators(self) -> "pd.DataFrame":
        """Where time and energy go: a row for each operator, and for call overhead or waits.

        Columns: `operator`, `calls`, `time_s`, `share` (of the time; they add up to 1), `energy_j`,
        `complete` (if not, some of its tuples are not measured, and the cost is a lower limit), and
        `predicted` (whether some are).
        """
        energies_j = {part.name: part.amount for part in self._chosen.parts(ENERGY)}
        return _frame(
            "operator calls time_s share energy_j complete predicted",
            [
                (
                    *(part.name, part.calls, part.amount, part.share, energies_j.get(part.name)),
                    part.complete and not part.is_rest,
                    part.predicted,
                )
                for part in self._parts
            ],
        )

    @cached_property
    def modules(self) -> "pd.DataFrame":
        """The tree of modules: each with its descendants, below its parent.

        Columns: `module` (its path; empty for the model), `depth`, `calls`, `flops` (a multiply-add
        is 2), `parameters`, `time_s`, `share`, `energy_j`, `tuples`, `measured_tuples`: where the
        last two differ, the cost is a lower limit, unless the others are `predicted_tuples`; it is
        missing if no tuple is measured.
        """
        energy = bool(self._chosen.parts(ENERGY))
        parameters = self.model.module_parameters, self.model.own_parameters
        tree = module_tree(self._chosen.compared, self._chosen.modules(), None, 0.0, *parameters)
        return _frame(
            "module depth calls flops parameters time_s share energy_j tuples measured_tuples "
            "predicted_tuples",
            [
                (
                    *(".".join(branch.path), branch.depth, branch.calls, branch.flops),
                    branch.parameters,
                    None if branch.is_unknown else branch.time_s,
                    None if branch.is_unknown else branch.share,
                    branch.energy_j if energy and not branch.is_unknown else None,
                    *(branch.tuples, branch.measured_tuples, branch.predicted_tuples),
                )
                for branch in tree
                if not branch.is_rest
            ],
        )

    @cached_property
    def memory(self) -> "pd.DataFrame":
        """The memory of an iteration, a row for each module, the largest first.

        Columns: `module`, `weight_bytes`, `at_peak_bytes` (that it made of the activations at their
        peak) and `peak_bytes` (the most activations that live at once while it runs).
        """
        rows = memory_use(self.model).modules
        return _frame(
            "module weight_bytes at_peak_bytes peak_bytes", [tuple(row.values()) for row in rows]
        )

    @cached_property
    def tuples(self) -> "pd.DataFrame":
        """A row for each operator tuple, with its calls and its measurement if any.

        `columns.md` of the documentation describes the columns (explanation).
        """
        import pandas as pd

        from opcost.rows import schemas

        rows = self._chosen.tuples()
        return pd.DataFrame(rows, columns=None if rows else schemas.EXPLANATION.names)

    @cached_property
    def missing(self) -> "pd.DataFrame":
        """The rows of `tuples` without a result."""
        return self.tuples[self.tuples["status"] != "ok"]

    @cached_property
    def targets(self) -> "pd.DataFrame":
        """The time and energy on every target of the databases, and which of them was chosen."""
        return _frame(
            "target device time_s energy_j measured_tuples predicted_share database chosen",
            [
                (
                    *(each.target, each.device_name),
                    each.estimate.time and each.estimate.time.value,
                    each.estimate.energy and each.estimate.energy.value,
                    len(each.estimate.measured),
                    each.estimate.predicted_share(),
                    str(each.database),
                    each is self._chosen,
                )
                for each in self._found
            ],
        )

    def __str__(self) -> str:
        """The text of `opcost explain` for this target."""
        return as_text(self.model, [self._chosen], _LISTED, None, self._name)

    def __repr__(self) -> str:
        return f"<opcost {self.model.model}: {self._summary()}>"

    def _summary(self) -> str:
        if self.time is None:
            return f"no time on {self.target}: {self.reason}"
        energy = f", {with_interval(self.energy, ENERGY.show)}" if self.energy else ""
        where = f"{self.target} ({self.device})" if self.device else self.target
        time = with_interval(self.time, TIME.show)
        predicted = f" ({percent(self.predicted_share)} predicted)" if self.predicted_share else ""
        return f"{time}{energy}{predicted} on {where}; {shares_text(self._chosen.parts(), _NAMED)}"

    def _repr_html_(self) -> str:
        heading = f"<p><b>{html.escape(self.model.model)}</b>: {html.escape(self._summary())}</p>"
        if self.operators.empty:
            return heading
        shown = self.operators.assign(
            calls=["" if part.calls is None else part.calls for part in self._parts],
            time=[
                "-" if part.amount is None else TIME.show(part.amount, _DIGITS)
                for part in self._parts
            ],
            share=[percent(part.share, 1) for part in self._parts],
        )
        columns = ["operator", "calls", "time", "share"]
        return heading + str(shown[columns].to_html(index=False, border=0))


def _frame(columns: str, rows: list[tuple[Any, ...]]) -> "pd.DataFrame":
    import pandas as pd

    frame = pd.DataFrame(rows, columns=columns.split())
    types = {name: kind for name, kind in _TYPES.items() if name in frame}
    return frame.astype(types)  # also of columns without a value
