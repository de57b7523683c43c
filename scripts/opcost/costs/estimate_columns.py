"""An estimate as columns of the comparison."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from opcost.costs.estimate import ModelEstimate
from opcost.costs.phases import phase_columns
from opcost.costs.terms import Term, flops_of
from opcost.models.definition import COMPARED_PHASES
from opcost.rows import comparability
from opcost.rows.flags import DISTURBED
from opcost.rows.quantities import ENERGY, HOST_TIME, PREDICTION, TIME

_END_TO_END_HOST = HOST_TIME.of("end_to_end").value
_OF_HOST = (HOST_TIME.value, _END_TO_END_HOST, "idle_time_s", "host_bound_share")
PARTS = (
    *("operators_time_s", "overhead_time_s", "partial_time_s", *_OF_HOST),
    *(name for phase in COMPARED_PHASES for name in TIME.of(f"estimate_{phase}").names),
)
"""The columns of an estimate that are null if it must not be compared."""


def estimate_columns(estimate: ModelEstimate) -> dict[str, Any]:
    """The columns of the comparison that need no reference."""
    calls, measured = estimate.calls, estimate.measured
    return {
        **TIME.of("estimate").columns(estimate.time),
        "operators_time_s": estimate.operators_time.value if estimate.operators_time else None,
        "overhead_time_s": estimate.overhead_time_s,
        "overhead_disturbed": estimate.rows[0]["overhead_disturbed"]
        if estimate.overhead or estimate.iteration
        else None,
        **_host_columns(estimate),
        **ENERGY.of("estimate").columns(estimate.energy),
        "energy_gain_uncertainty": max(
            (row["power_gain_uncertainty"] or 0.0 for row in estimate.rows), default=0.0
        )
        or None,
        "partial_time_s": None
        if estimate.conflict
        else sum(term.calls * term.row["time_s"] for term in measured if term.row),
        "coverage_flops": _flops_coverage(estimate.terms),
        "calls": calls,
        "cold_calls": int(estimate.cold_calls) if estimate.overhead else None,
        "view_calls": len(estimate.model.calls) - calls,
        "tuples": len(estimate.terms),
        "measured_tuples": len(measured),
        "predicted_tuples": len(estimate.known) - len(measured),
        "predicted_share": estimate.predicted_share(),
        **PREDICTION.columns(estimate.prediction_ratio(TIME)),
        "failed_tuples": sum(term.row is not None and not term.measured for term in estimate.terms),
        "flag_counts": Counter(flag for row in estimate.rows for flag in row["flags"]),
        "disturbed_runs": sum(row["disturbed_runs"] or 0 for row in estimate.rows),
        "disturbed_share": estimate.flagged_share(DISTURBED, terms=measured) if measured else None,
        "flops": flops_of(estimate.terms),
        "parameters": estimate.model.parameters,
        "activation_peak_bytes": estimate.model.activation_peak_bytes,
        "weights_read_again": estimate.model.weights_read_again,
        **phase_columns(estimate),
        **_inputs(estimate),
        **_uncertainties(estimate),
        TIME.run_sd: estimate.noise.variations[TIME].sd if estimate.rows else None,
        "provenance_differences": comparability.provenance_differences(estimate.rows),
        "differing_calls": estimate.differing_calls,
    }


def _uncertainties(estimate: ModelEstimate) -> dict[str, Any]:
    """Of what the interval of an estimate consists."""
    columns: dict[str, Any] = {}
    known = []
    for quantity, total in ((TIME, estimate.summed_time), (ENERGY, estimate.summed_energy)):
        error = estimate.model_error(quantity) if total else None
        known += [error] if error else []
        columns[quantity.measurement_half] = total and total.relative_half_width
        columns[quantity.model_error_half] = error and error.half_width
    return columns | {"model_error_models": known[0].models if known else None}


def _inputs(estimate: ModelEstimate) -> dict[str, Any]:
    definition = estimate.model.definition
    if definition is None:
        return dict.fromkeys(("inputs", "dtype", "batch_size"))
    return {
        "inputs": ", ".join(map(str, estimate.model.inputs)),
        "dtype": estimate.model.precision,
        "batch_size": definition.batch_size,
    }


def _host_columns(estimate: ModelEstimate) -> dict[str, float | None]:
    if estimate.iteration is None:
        return dict.fromkeys(_OF_HOST)
    idle_s = estimate.iteration.idle.value
    return {
        HOST_TIME.value: estimate.iteration.host_s,
        _END_TO_END_HOST: estimate.end_to_end_host.value if estimate.end_to_end_host else None,
        "idle_time_s": idle_s,
        "host_bound_share": idle_s / estimate.iteration.time.value,
    }


def _flops_coverage(terms: Sequence[Term]) -> float | None:
    total = flops_of(terms)
    return (flops_of([term for term in terms if term.measured]) or 0) / total if total else None
