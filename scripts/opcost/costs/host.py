"""What the host of a device does in a model, where it runs ahead of the device.

The clocks of the race (race.py) are those of the rows: the host needs `host_time_s` of an operator
and the overhead of a call to launch it, the device `time_s` to run it. A view, which is mostly
called without a module of its own, takes the host the overhead of a view.

What a call costs in Python differs between models. Where the whole model was measured, its calls
take the host as long as they did there, in proportion; elsewhere, the interval of call overhead
reaches over models.

Intervals are those of races whose times are drawn from the intervals of the rows; all calls of a
tuple share its error.
"""

# ASSUME normal or Student's errors, of another scale on each side where an interval is lopsided.

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from opcost.costs.race import Clocks, Race, Seconds, replay
from opcost.costs.terms import Row, Term
from opcost.models.phases import FORWARD
from opcost.rows import comparability
from opcost.rows.executed import measured_value
from opcost.rows.flags import WAITS_FOR_DEVICE
from opcost.rows.quantities import HOST_TIME, OVERHEADS, TIME, Quantity
from opcost.statistics import Estimate, student_97_5
from opcost.tuples.model_tuples import ModelTuples

_SAMPLES = 1000

_BETWEEN_MODELS = 0.1, 2.9
"""The least and the most overhead of a call or view in a model, as a share of the target's, in
models of torchvision and in chains of light modules and views (docs/explanation/race.md)."""

_WITHOUT_MODULE = -0.4, 2.9
"""The same of a further call of one module: in a loop over a function, a call may take less than in
the benchmark of its operator."""

_NOTHING = Estimate(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class HostRace:
    """A model's race, whose first sample has the values without their errors.

    `host_s` are the seconds in which the host launches an iteration, as estimated from the calls.
    """

    race: Race
    has_interval: bool
    host_s: float

    @property
    def time(self) -> Estimate:
        """Seconds of an iteration."""
        return self._estimate(self.race.period_s)

    @cached_property
    def idle(self) -> Estimate:
        """Seconds of an iteration in which the device waits for its host."""
        return self._estimate(self.race.idle_s.sum(axis=0))

    @property
    def idle_by_call_s(self) -> list[float]:
        """For how long the device waits for each call of the model, in order."""
        found: list[float] = self.race.idle_s[:, 0].tolist()
        return found

    def _estimate(self, seconds: Seconds) -> Estimate:
        value = float(seconds[0])
        if not self.has_interval:
            return Estimate(value, None, None)
        low, high = np.quantile(seconds[1:], (0.025, 0.975))
        return Estimate(value, min(float(low), value), max(float(high), value))


def races(rows: Sequence[Row]) -> bool:
    """Whether the rows are of a device whose host runs ahead; False if unknown, as if imported."""
    kind = comparability.kind_of(rows[0]) if rows else None
    return kind is not None and not kind.host_sets_pace


def unknown_host(rows: Sequence[Row]) -> str | None:
    """Why rows of one target do not say what the host needs in a model, or None."""
    if not rows or comparability.kind_of(rows[0]) is None:
        return None
    target = rows[0]["target"]
    unknown = [row for row in rows if row[HOST_TIME.value] is None and not _waits(row)]
    if races(rows) and unknown:
        return (
            f"{len(unknown)} of {len(rows)} rows do not say what the host needs to launch the "
            "operator (host_time_s). To measure all again, give the target "
            f"{target} another name"
        )
    if rows[0]["call_overhead_s"] is not None:
        return None
    return (
        f"the database has no call overhead of target {target}. Run the study again where it was "
        "measured: its rows are kept, and the call overhead is added"
    )


def race_of(
    model: ModelTuples, terms: Sequence[Term], whole_host: Estimate | None = None
) -> HostRace:
    """The race of a model whose terms all have results, and host times or wait for the device.

    `whole_host` are the seconds in which the host launches the whole model, if measured.
    """
    by_id = {term.record.operator_tuple.tuple_id: term.row for term in terms}
    rows = [by_id.get(tuple_id) for tuple_id in model.by_id]
    known = [row for row in rows if row is not None]
    call, view = (OVERHEADS[kind].read(known[0]) or _NOTHING for kind in ("call", "view_call"))
    estimates = [
        *(_read(row, TIME) for row in rows),
        *(_read(row, HOST_TIME) for row in rows),
        _of_any_model(call, _BETWEEN_MODELS),
        _of_any_model(call, _WITHOUT_MODULE),
        _of_any_model(view, _BETWEEN_MODELS),
        whole_host or _NOTHING,
    ]
    device_s, own_s, others_s = np.split(_drawn(estimates), [len(rows), 2 * len(rows)])
    calls = [call.position for call in model.calls]
    host_s = np.maximum(own_s, 0.0)[calls] + others_s[_overheads(model, rows)]
    host_s = np.maximum(host_s, 0.0)
    sums_s = host_s.sum(axis=0)
    if whole_host is not None:
        host_s *= np.maximum(others_s[-1], 0.0) / sums_s
    clocks = Clocks(
        host_s,
        np.maximum(device_s, 0.0)[calls],
        [rows[index] is not None for index in calls],
        [_waits(rows[index]) for index in calls],
    )
    has_interval = all(None not in (each.low, each.high) for each in estimates)
    return HostRace(replay(clocks), has_interval, float(sums_s[0]))


def _overheads(model: ModelTuples, rows: Sequence[Row | None]) -> list[int]:
    """Which overhead each call has: 0 of a module, 1 of a further call of it, 2 of a view.

    Backward and optimizers call no module.
    """
    return [
        2 if rows[call.position] is None else int(not first or call.phase != FORWARD)
        for call, first in zip(model.calls, model.first_of_module, strict=True)
    ]


def _waits(row: Row | None) -> bool:
    return row is not None and WAITS_FOR_DEVICE in row["flags"]


def _of_any_model(overhead: Estimate, shares: tuple[float, float]) -> Estimate:
    least, most = shares
    low, high = (
        overhead.value if limit is None else limit for limit in (overhead.low, overhead.high)
    )
    return Estimate(overhead.value, min(least * low, least * high), most * high)


def _read(row: Row | None, quantity: Quantity) -> Estimate:
    return (None if row is None else measured_value(row, quantity)) or _NOTHING


def _drawn(estimates: Sequence[Estimate]) -> Seconds:
    """A row for each estimate: its value, and samples around it."""
    limits = [(each.low, each.value, each.high) for each in estimates]
    values = np.array([value for _, value, _ in limits])[:, None]
    below = np.array([0.0 if low is None else value - low for low, value, _ in limits])[:, None]
    above = np.array([0.0 if high is None else high - value for _, value, high in limits])[:, None]
    generator, size = np.random.default_rng(0), (len(estimates), 1 + _SAMPLES)
    degrees = np.array([each.degrees_of_freedom or np.inf for each in estimates])[:, None]
    finite = np.where(np.isinf(degrees), 1.0, degrees)
    stretch = np.where(np.isinf(degrees), 1.0, finite / generator.chisquare(finite, size))
    errors = generator.standard_normal(size) * np.sqrt(stretch)
    errors[:, 0] = 0.0
    half = np.array([student_97_5(each.degrees_of_freedom) for each in estimates])[:, None]
    return values + errors * np.where(errors < 0, below, above) / half
