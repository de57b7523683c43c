"""The flags of rows: their meaning, remedy and consequences.

Flags are defined here and raised where their cause is detected; no other file spells a flag's name.
docs/reference/flags.md is generated from this file.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opcost.rows.column import entries


class Flag(NamedTuple):
    """`spoils`: the cause is physical and temporary, so the trial is retried."""

    meaning: str
    remedy: str
    spoils: bool


DISTURBED = "disturbed"
SENTINEL_QUICKER = "sentinel_quicker"
DRIFTING = "drifting"
LAUNCH_BOUND = "launch_bound"
WAITS_FOR_DEVICE = "waits_for_device"
FOOTPRINT_WITHIN_CACHE = "footprint_within_cache"
DEGENERATE_VALUES = "degenerate_values"
VALUE_DEPENDENT = "value_dependent"
MODEL_VALUES = "model_values"
STATE_CHANGED = "state_changed"
CALLS_VARY = "calls_vary"
CALLS_DIFFER = "calls_differ"
COMPILED_PARTS = "compiled_parts"
TOO_FEW_REFRESHES = "too_few_refreshes"
RUNS_DISAGREE = "runs_disagree"
POWER_DRIFTING = "power_drifting"
POWER_UNSTEADY = "power_unsteady"
PHASES_NOT_COVERED = "phases_not_covered"
POWER_NOT_CONVERGED = "power_not_converged"
COUNTER_DISAGREES = "counter_disagrees"
POWER_CAPPED = "power_capped"
THROTTLED = "throttled"
OTHER_PROCESS = "other_process"
BUSY_WHEN_IDLE = "busy_when_idle"
PACE_DIFFERS = "pace_differs"
POINT_CHANGED = "point_changed"
ABOVE_ROOF = "above_roof"
ASSUMED_SENSOR = "assumed_sensor"
PREDICTED = "predicted"
IMPORTED = "imported"

UNSURE_POWER = {BUSY_WHEN_IDLE, COUNTER_DISAGREES, OTHER_PROCESS, PACE_DIFFERS, THROTTLED}
"""The flags of runs whose power may be another than that of the work as it was timed."""

_SPOILING = {THROTTLED, BUSY_WHEN_IDLE}

_TEXT = """
    disturbed: interference slowed the core in more than half of the blocks of iterations, or in so
        many that disturbed blocks had to count
        -> on a quiet machine, run opcost retry --flag disturbed
    sentinel_quicker: the core is faster than at the start of the study: the baseline was measured
        under interference, so interference goes undetected
        -> move the target's folder in results away, and run again on an idle machine
    drifting: the intervals of the medians over the first and the second half of the undisturbed
        blocks of iterations do not overlap
        -> raise warm_up_s or min_time_s in config/config.yaml
    launch_bound: the host needs longer to launch the operator than the GPU to run it (host_time_s,
        time_s): a model with many such calls in a row waits for its host
        -> use larger batches or a CUDA graph, if your application can
    waits_for_device: the operator waits for the GPU, or one call launches more kernels than its
        queue holds: its time contains launching
        -> read the time as an upper limit of the GPU's
    footprint_within_cache: too little memory was free to evict the operands from the cache, as
        cache state cold requires
        -> read the time as a lower limit
    degenerate_values: values became infinite or NaN
        -> harmless where time does not depend on values, as with most operators
    value_dependent: sizes depend on values: the row is valid for the recorded input only
    model_values: floating-point operands have the values of the tuple's first call in the model
        that measurement.operand_values names in conditions_json, not random ones
    state_changed: the model's code changed settings of the process, such as threads or TF32; opcost
        restored the target's before timing
        -> remove these changes from the model's code
    calls_vary: the model makes different calls in later iterations than in its first: the estimate
        is for the first
        -> measure a model without that branch or counter
    calls_differ: the model launched other kernels than were recorded or extracted before
        (differing_calls: + more, - fewer calls), so its estimate would be another model's
        -> see docs/explanation/real_gpus.md
    compiled_parts: parts of the model that torch.compile compiles ran eagerly, in the estimate and
        end to end
        -> to measure the entire model compiled, add compiled to launch_modes
    too_few_refreshes: the power sensor gave fewer than 8 different readings: it is stuck, too slow
        or too coarse
        -> look at power_sample_w
    runs_disagree: runs differ by more than the usual run-to-run variation explains; the interval of
        the row holds all of them
        -> raise `rounds`, and run again
    power_drifting: power changed over the window by more than power_relative_ci
        -> let the device warm up: raise power_lead_in_max_s
    power_unsteady: power varied more after the first stage, so its interval is too narrow
        -> end what else runs, and run opcost retry --flag power_unsteady
    phases_not_covered: an iteration is too long to be started at four phases of the power sensor
        within power_max_s
        -> raise power_max_s
    power_not_converged: the interval of power is wider than power_relative_ci; the row is valid,
        with this interval
        -> raise power_max_s
    counter_disagrees: energy counter and power readings differ by more than the sensor's tolerance
        -> trust neither: look at counter_power_w and sensor.json
    power_capped: the power limit reduced the clock for more than 1 % of the window
        -> compare only with rows of the same power limit, or as points of a sweep over limits
    throttled: temperature or the power brake throttled the device for more than 1 % of the window
        -> cool the device, and run opcost retry --flag throttled
    other_process: another process computed on the device
        -> end that process, and run opcost retry --flag other_process
    busy_when_idle: idle power was more than 1.5 times the characterised idle power
        -> end the process that keeps the device busy, or characterise the sensor again
    pace_differs: an iteration took at least 5 % more time in the power phase than in the timing
        phase, or an unknown time, or, on a processor, less; a GPU's power is converted to the timed
        pace, which widens its interval
        -> use larger inputs, because reading the sensor delays the launches of launch-bound work;
        keep other work off the host
    point_changed: the power limit, a locked clock or the highest frequency of the cores was another
        one at the end of the measurement than at its start: another program set it meanwhile
        -> end that program, and run opcost retry --flag point_changed
    above_roof: flops / time_s exceeds the peak of such a device: the FLOPs or the time are wrong
        -> use neither, and report the row's description to opcost
    assumed_sensor: the power sensor was not, or not completely, characterised
        -> run snakemake --cores 1 characterize
    predicted: nobody measured this: it is interpolated between rows of the target
        -> see docs/explanation/prediction.md
    imported: measured by others, with other methods
        -> see docs/how_to/databases.md
"""
"""`name: meaning -> remedy` of each flag, whose further lines are indented."""


def _flags() -> Iterator[tuple[str, Flag]]:
    for entry in entries(_TEXT):
        name, said = entry.split(": ", 1)
        meaning, _, remedy = said.partition(" -> ")
        yield name, Flag(meaning, remedy, name in _SPOILING)


FLAGS = dict(_flags())
"""Every flag by its name."""


def spoiling(names: Iterable[str]) -> set[str]:
    """The flags for which a trial must be retried."""
    return {name for name in names if FLAGS[name].spoils}


def meaning(name: str) -> str:
    """The meaning of a flag."""
    return FLAGS[name].meaning if name in FLAGS else "a flag that this version does not know"


def explained(name: str) -> str:
    """The meaning and the remedy of a flag."""
    remedy = FLAGS[name].remedy if name in FLAGS else ""
    return f"{meaning(name)}; {remedy}" if remedy else meaning(name)
