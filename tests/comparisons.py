"""Comparisons of tiny_cnn with rows made up, on a processor or a GPU."""

import math

from opcost.costs.comparison import compare_study
from opcost.costs.summary import details, first_screen
from opcost.databases import model_ratios
from opcost.noise import Variation
from opcost.rows import comparability, records, schemas
from opcost.rows.quantities import CALL_TIME, ENERGY, HOST_TIME, MEASURED
from opcost.rows.runs import COLUMNS, ModelRatio, Noise, noise_of
from opcost.tuples.manifest import collect

CONDITIONS = dict.fromkeys(comparability.COLUMNS) | {
    "device_name": "Simulated",
    "device_uuid_hash": None,
    "driver_version": None,
    "torch_version": "2.15.0",
    "protocol_version": 1,
    "conditions_json": "{}",
    "cache_state": "cold",
    "launch_mode": "eager",
}


def row(time_s=1e-3, power_w=None, **changes):
    """A measured row: 1 % either side in time, 2 % in power, and 20 W when idle."""
    energy_j = None if power_w is None else time_s * power_w
    return {
        **dict.fromkeys(COLUMNS),
        **CONDITIONS,
        "target": "local",
        "status": "ok",
        "error": None,
        "time_s": time_s,
        "time_ci_low_s": time_s and time_s * 0.99,
        "time_ci_high_s": time_s and time_s * 1.01,
        "energy_j": energy_j,
        "energy_ci_low_j": None if energy_j is None else energy_j * 0.98,
        "energy_ci_high_j": None if energy_j is None else energy_j * 1.02,
        "energy_reason": "simulated: no meter" if power_w is None else None,
        "idle_power_w": None if power_w is None else 20.0,
        "power_gain_uncertainty": None if power_w is None else 0.05,
        "converged": True,
        "flags": [],
        "sentinel_time_s": 1e-4,
        "call_overhead_s": None,
        "cold_call_overhead_s": None,
        **dict.fromkeys(["runs", "disturbed_runs"]),
        "power_w": power_w,
        "power_ci_low_w": power_w and power_w * 0.99,
        "power_ci_high_w": power_w and power_w * 1.01,
        "differing_calls": None,
        "calls_hash": None,
        **dict.fromkeys([*HOST_TIME.names, *CALL_TIME.names, "call_tuple_id", "in_context_reason"]),
        "clocked_time_s": None,
        **changes,
    }


FAILED = {"status": "out_of_memory", "error": "too large", "time_s": None, "energy_j": None}

OVERHEAD = {
    f"{name}_overhead{limit}_s": seconds * factor
    for name, seconds in {"call": 1e-5, "cold_call": 1e-4, "view_call": 1e-6}.items()
    for limit, factor in {"": 1.0, "_ci_low": 0.9, "_ci_high": 1.1}.items()
} | {"overhead_disturbed": False}

OF_A_GPU = {"conditions_json": '{"target": {"device": "cuda"}}'}
ON_A_GPU = {
    **OF_A_GPU,
    **{name: value for name, value in OVERHEAD.items() if not name.startswith("cold")},
    "core_cache_bytes": 0,
}
"""A call takes the host 10 us more than its operator, a view 1 us."""


def summary(comparison, shares, refused=None, in_context=(), further=()):
    """The first screen and the details on one line: a test need not know where its lines end."""
    texts = (
        first_screen(comparison, shares, refused, further),
        details(comparison, shares, in_context),
    )
    return " ".join("\n\n".join(texts).split())


def launched_in(seconds, **changes):
    """A GPU's row, 2 % either side in the host's time."""
    host = {"host_time_s": seconds}
    if seconds is not None:
        host |= {"host_time_ci_low_s": 0.98 * seconds, "host_time_ci_high_s": 1.02 * seconds}
    return ON_A_GPU | host | changes


def noise(*ratios, **sds):
    """The noise of a target whose runs vary by these relative standard deviations, 0 by default."""
    return Noise(
        {each: Variation(sds.get(str(each), 0.0), math.inf) for each in (*MEASURED, ENERGY)}, ratios
    )


def other_models(*ratios, trains=False):
    """Other models of a target, of which estimates of time are so many times what they took."""
    return [ModelRatio(f"m{n}", trains, math.log(each), None) for n, each in enumerate(ratios)]


def compared(
    cnn,
    operators=None,
    reference=None,
    whitelist=None,
    power_w=None,
    again=(),
    of_target=None,
    without=(),
    predict_from=dict,
    **every_operator,
):
    """The comparison of tiny_cnn: two calls of conv2d, one of relu, one of linear, each 1 ms."""
    manifest = collect([cnn], whitelist)
    rows = [
        row(power_w=power_w, tuple_id=record.operator_tuple.tuple_id, **every_operator)
        | (operators or {}).get(record.operator_tuple.name, {})
        for record in cnn.tuples
        if manifest[record.operator_tuple.tuple_id]["excluded"] is None
        and record.operator_tuple.name not in without
    ]
    whole = row(5e-3, power_w) | {"model": "tiny_cnn"} | (reference or {})
    wholes = [whole, *(whole | changes for changes in again)]
    noises = {"local": of_target or noise_of(rows)}
    [comparison], shares, *_ = compare_study(
        {"local": [cnn]}, rows, wholes, manifest, noises, predict_from=predict_from
    )
    return comparison, shares


def database(path, models, *targets, without=(), ratios=(), **changes):
    """A database of all tuples of these models: 1 ms each, in one run, within 1 %."""
    tuples = {record.operator_tuple: record for model in models for record in model.tuples}
    rows = [
        records.operator_columns(record)
        | CONDITIONS
        | {
            "target": target,
            "status": "ok",
            "time_s": 1e-3,
            "time_ci_low_s": 0.99e-3,
            "time_ci_high_s": 1.01e-3,
            "energy_reason": "simulated: no meter",
            "converged": True,
            "flags": [],
            "core_cache_bytes": 2**20,
            **OVERHEAD,
            **changes,
        }
        for target in targets or ("local",)
        for operator_tuple, record in tuples.items()
        if record.launches_kernel and operator_tuple.name not in without
    ]
    of_targets = dict.fromkeys(targets or ("local",), ratios)
    schema = schemas.DATABASE
    schema = schema.with_metadata(schema.metadata | model_ratios.metadata(of_targets))
    records.write(path, schema, rows)
    return path
