"""Sums over operators against whole models, model by model and target by target.

On a processor, a call costs more than its operator's own time: the estimate adds this overhead, as
measured for the target.

A sum is an answer only if it is complete: with a tuple missing, the estimate is null and says why.
What could be measured is there all the same, named `partial`.

A measurement made again later, in another process, gives another number, by more than its interval
says: memory lies elsewhere, the machine's own speed varies. Some operators are measured twice to
know by how much. Intervals here hold both errors: the one within a measurement and, independent for
each, this one.
"""

# ASSUME that all measurements reproduce as well as those that are made twice.

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opcost import statistics
from opcost.displacement import displaced_calls
from opcost.manifest import ModelTuples
from opcost.shares import shares
from opcost.statistics import Estimate
from opcost.terms import Row, Term, terms_of, total_flops, why_incomplete

_SAME_CONDITIONS = (
    "device_name",
    "device_uuid_hash",
    "driver_version",
    "torch_version",
    "protocol_version",
    "conditions_json",
)
OPERATOR_COLUMNS = (
    "tuple_id",
    "target",
    "status",
    "error",
    "time_s",
    "time_ci_low_s",
    "time_ci_high_s",
    "energy_j",
    "energy_ci_low_j",
    "energy_ci_high_j",
    "energy_reason",
    "converged",
    "flags",
    *_SAME_CONDITIONS,
)
"""What a comparison asks of an operator's row: raw values are not among it."""


def compare_study(
    models: Sequence[ModelTuples],
    operator_rows: Sequence[Row],
    rows_again: Sequence[Row],
    model_rows: Sequence[Row],
    manifest: Mapping[str, Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The comparison and the shares of every measured model on every target.

    Operator rows have `OPERATOR_COLUMNS` at least. `rows_again` are rows of some of the operators,
    measured a second time.
    """
    filtered = {tuple_id for tuple_id, entry in manifest.items() if entry["excluded"] == "filtered"}
    rows: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in operator_rows:
        rows[row["target"]][row["tuple_id"]] = row
    again: dict[str, list[Row]] = defaultdict(list)
    for row in rows_again:
        again[row["target"]].append(row)
    spreads = {target: _spread(rows[target], again[target]) for target in list(rows)}
    by_name = {model.model: model for model in models}
    comparison, table = [], []
    for reference in model_rows:
        model, target = by_name[reference["model"]], reference["target"]
        terms = terms_of(model, rows[target], filtered)
        comparison.append(compare(model, target, reference, terms, spreads.get(target)))
        table += shares(model, target, reference, terms)
    return comparison, table


def compare(
    model: ModelTuples, target: str, reference: Row, terms: Sequence[Term], spread: float | None
) -> dict[str, Any]:
    """The comparison row of one model on one target.

    `reference` is the row of the whole model, `spread` the relative standard deviation of one
    measurement among others of the same.
    """
    measured = [term for term in terms if term.measured]
    partial_s = sum(term.calls * term.row["time_s"] for term in measured if term.row)
    reference_time = _estimate(reference, "time", "s", spread)
    conflict = _conflict([*(term.row for term in measured if term.row), reference])
    calls = sum(term.calls for term in terms)
    overhead = _overhead(model, calls, reference)
    operators_time = estimate_time = None
    time_reason = conflict or why_incomplete(terms)
    if time_reason is None:
        operators_time = statistics.weighted_sum(_weighted(terms, "time", "s", spread))
        estimate_time = statistics.weighted_sum([(1, operators_time), *overhead.values()])
    if reference_time is None:
        failure = f"the whole model was not measured: {reference['status']}: {reference['error']}"
        time_reason = f"{time_reason}; {failure}" if time_reason else failure
    row = {
        "model": model.model,
        "target": target,
        **_columns("estimate_time", "s", estimate_time),
        **_columns("reference_time", "s", reference_time),
        **_relative_error("time", estimate_time, reference_time),
        "time_reason": time_reason,
        "operators_time_s": operators_time.value if operators_time else None,
        "overhead_time_s": sum(count * each.value for count, each in overhead.values())
        if operators_time
        else None,
        "partial_time_s": partial_s,
        "coverage_calls": sum(term.calls for term in measured) / calls if calls else None,
        "coverage_flops": _flops_coverage(terms),
        "coverage_time": partial_s / reference_time.value if reference_time else None,
        "calls": calls,
        "displaced_calls": overhead["displaced_call"][0] if overhead else None,
        "view_calls": len(model.calls) - calls,
        "tuples": len(terms),
        "measured_tuples": len(measured),
        "failed_tuples": sum(term.row is not None and not term.measured for term in terms),
        "filtered_tuples": sum(term.filtered for term in terms),
        "unconverged_tuples": sum(not term.row["converged"] for term in measured if term.row),
        "flag_counts": Counter(flag for term in measured if term.row for flag in term.row["flags"]),
        "flops": total_flops(terms),
        "parameters": model.parameters,
        "spread": spread,
        **{
            name: reference[name]
            for name in ("cache_state", "device_name", "torch_version", "protocol_version")
        },
    }
    return row | _energy(terms, reference, operators_time, reference_time, spread, time_reason)


def _overhead(model: ModelTuples, calls: int, reference: Row) -> dict[str, tuple[int, Estimate]]:
    """How many calls of each kind, and what each costs beyond its operator.

    Empty where the device, not its host, sets the pace.
    """
    if reference["call_overhead_s"] is None:
        return {}
    displaced = displaced_calls(model, reference["core_cache_bytes"])
    views = len(model.calls) - calls
    counts = {"call": calls - displaced + views, "displaced_call": displaced, "view_call": views}
    return {
        kind: (count, _with_limits(reference, f"{kind}_overhead", "s"))
        for kind, count in counts.items()
    }


def _spread(rows: Mapping[str, Row], rows_again: Sequence[Row]) -> float | None:
    pairs = [
        (rows[again["tuple_id"]]["time_s"], again["time_s"])
        for again in rows_again
        if again["tuple_id"] in rows
    ]
    return statistics.spread_of_pairs(
        [(first, second) for first, second in pairs if first is not None and second is not None]
    )


def _conflict(rows: Sequence[Row]) -> str | None:
    """What rows differ in that must not be added up, or None."""
    ok = [row for row in rows if row["status"] == "ok"]
    for name in _SAME_CONDITIONS:
        values = {row[name] for row in ok}
        may_differ = name == "device_uuid_hash" and all(_any_of_kind(row) for row in ok)
        if len(values) > 1 and not may_differ:
            found = " and ".join(sorted(map(str, values)))
            return f"measured under different conditions: {name} {found}"
    return None


def _any_of_kind(row: Row) -> bool:
    target = json.loads(row["conditions_json"]).get("target", {})
    return bool(target.get("any_of_kind"))


def _energy(
    terms: Sequence[Term],
    reference: Row,
    operators_time: Estimate | None,
    reference_time: Estimate | None,
    spread: float | None,
    time_reason: str | None,
) -> dict[str, Any]:
    """The energy columns; between its operators a model idles, so idle power is added."""
    reference_energy = _estimate(reference, "energy", "j", spread)
    reasons = {term.row["energy_reason"] for term in terms if term.measured and term.row}
    reason = time_reason or reference["energy_reason"] or next(iter(reasons - {None}), None)
    estimate = None
    if reason is None and operators_time and reference_time:
        gap_s = reference_time.value - operators_time.value
        if reference["idle_power_w"] is None:
            reason = "the idle power was not measured"
        else:
            operators = statistics.weighted_sum(_weighted(terms, "energy", "j", spread))
            estimate = _shifted(operators, reference["idle_power_w"] * gap_s)
    return {
        **_columns("estimate_energy", "j", estimate),
        **_columns("reference_energy", "j", reference_energy),
        **_relative_error("energy", estimate, reference_energy),
        "energy_reason": reason,
    }


def _shifted(estimate: Estimate, offset: float) -> Estimate:
    if estimate.low is None or estimate.high is None:
        return Estimate(estimate.value + offset, None, None)
    return Estimate(estimate.value + offset, estimate.low + offset, estimate.high + offset)


def _weighted(
    terms: Sequence[Term], quantity: str, unit: str, spread: float | None
) -> Iterable[tuple[float, Estimate]]:
    for term in terms:
        estimate = _estimate(term.row, quantity, unit, spread) if term.row else None
        if estimate is not None:
            yield term.calls, estimate


def _estimate(row: Row, quantity: str, unit: str, spread: float | None) -> Estimate | None:
    if row[f"{quantity}_{unit}"] is None:
        return None
    return _with_limits(row, quantity, unit).widened(spread or 0.0)


def _with_limits(row: Row, quantity: str, unit: str) -> Estimate:
    low, high = row[f"{quantity}_ci_low_{unit}"], row[f"{quantity}_ci_high_{unit}"]
    return Estimate(row[f"{quantity}_{unit}"], low, high)


def _columns(name: str, unit: str, estimate: Estimate | None) -> dict[str, Any]:
    return {
        f"{name}_{unit}": estimate.value if estimate else None,
        f"{name}_ci_low_{unit}": estimate.low if estimate else None,
        f"{name}_ci_high_{unit}": estimate.high if estimate else None,
    }


def _relative_error(
    quantity: str, estimate: Estimate | None, reference: Estimate | None
) -> dict[str, Any]:
    name = f"{quantity}_relative_error"
    if estimate is None or reference is None:
        return {name: None, f"{name}_ci_low": None, f"{name}_ci_high": None}
    ratio = statistics.ratio(estimate, reference)
    return {
        name: ratio.value - 1,
        f"{name}_ci_low": None if ratio.low is None else ratio.low - 1,
        f"{name}_ci_high": None if ratio.high is None else ratio.high - 1,
    }


def _flops_coverage(terms: Sequence[Term]) -> float | None:
    total = total_flops(terms)
    if not total:
        return None
    return sum(term.calls * (term.record.flops or 0) for term in terms if term.measured) / total
