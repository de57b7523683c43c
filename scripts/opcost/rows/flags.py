"""The flags of rows: their meaning, remedy and consequences.

Flags are defined here and raised where their cause is detected; no other file spells a flag's name.
docs/reference/flags.md is generated from this file.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Flag(NamedTuple):
    """`spoils`: the cause is physical and temporary, so the trial is retried."""

    meaning: str
    remedy: str
    spoils: bool


FLAGS: dict[str, Flag] = {}
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


def _flag(name: str, meaning: str, remedy: str = "", spoils: bool = False) -> str:
    FLAGS[name] = Flag(meaning, remedy, spoils)
    return name


DISTURBED = _flag(
    "disturbed",
    "interference slowed the core in more than half of the blocks of iterations, or in so many "
    "that disturbed blocks had to count",
    "on a quiet machine, run opcost retry --flag disturbed",
)
SENTINEL_QUICKER = _flag(
    "sentinel_quicker",
    "the core is faster than at the start of the study: the baseline was measured under "
    "interference, so interference goes undetected",
    "move the target's folder in results away, and run again on an idle machine",
)
DRIFTING = _flag(
    "drifting",
    "the intervals of the medians over the first and the second half of the undisturbed blocks of "
    "iterations do not overlap",
    "raise warm_up_s or min_time_s in config/config.yaml",
)
LAUNCH_BOUND = _flag(
    "launch_bound",
    "the host needs longer to launch the operator than the GPU to run it (host_time_s, time_s): a "
    "model with many such calls in a row waits for its host",
    "use larger batches or a CUDA graph, if your application can",
)
WAITS_FOR_DEVICE = _flag(
    "waits_for_device",
    "the operator waits for the GPU, or one call launches more kernels than its queue holds: its "
    "time contains launching",
    "read the time as an upper limit of the GPU's",
)
FOOTPRINT_WITHIN_CACHE = _flag(
    "footprint_within_cache",
    "too little memory was free to evict the operands from the cache, as cache state cold requires",
    "read the time as a lower limit",
)
DEGENERATE_VALUES = _flag(
    "degenerate_values",
    "values became infinite or NaN",
    "harmless where time does not depend on values, as with most operators",
)
VALUE_DEPENDENT = _flag(
    "value_dependent",
    "sizes depend on values: the row is valid for the recorded input only",
)
MODEL_VALUES = _flag(
    "model_values",
    "floating-point operands have the values of the tuple's first call in the model that "
    "measurement.operand_values names in conditions_json, not random ones",
)
STATE_CHANGED = _flag(
    "state_changed",
    "the model's code changed settings of the process, such as threads or TF32; opcost restored "
    "the target's before timing",
    "remove these changes from the model's code",
)
CALLS_VARY = _flag(
    "calls_vary",
    "the model makes different calls in later iterations than in its first: the estimate is for "
    "the first",
    "measure a model without that branch or counter",
)
CALLS_DIFFER = _flag(
    "calls_differ",
    "the model launched other kernels than were recorded or extracted before (differing_calls: "
    "+ more, - fewer calls), so its estimate would be another model's",
    "see docs/explanation/real_gpus.md",
)
COMPILED_PARTS = _flag(
    "compiled_parts",
    "parts of the model that torch.compile compiles ran eagerly, in the estimate and end to end",
    "to measure the entire model compiled, add compiled to launch_modes",
)
TOO_FEW_REFRESHES = _flag(
    "too_few_refreshes",
    "the power sensor gave fewer than 8 different readings: it is stuck, too slow or too coarse",
    "look at power_sample_w",
)
RUNS_DISAGREE = _flag(
    "runs_disagree",
    "runs differ by more than the usual run-to-run variation explains; the interval of the row "
    "holds all of them",
    "raise `rounds`, and run again",
)
POWER_DRIFTING = _flag(
    "power_drifting",
    "power changed over the window by more than power_relative_ci",
    "let the device warm up: raise power_lead_in_max_s",
)
POWER_UNSTEADY = _flag(
    "power_unsteady",
    "power varied more after the first stage, so its interval is too narrow",
    "end what else runs, and run opcost retry --flag power_unsteady",
)
PHASES_NOT_COVERED = _flag(
    "phases_not_covered",
    "an iteration is too long to be started at four phases of the power sensor within power_max_s",
    "raise power_max_s",
)
POWER_NOT_CONVERGED = _flag(
    "power_not_converged",
    "the interval of power is wider than power_relative_ci; the row is valid, with this interval",
    "raise power_max_s",
)
COUNTER_DISAGREES = _flag(
    "counter_disagrees",
    "energy counter and power readings differ by more than the sensor's tolerance",
    "trust neither: look at counter_power_w and sensor.json",
)
POWER_CAPPED = _flag(
    "power_capped",
    "the power limit reduced the clock for more than 1 % of the window",
    "compare only with rows of the same power limit, or as points of a sweep over limits",
)
THROTTLED = _flag(
    "throttled",
    "temperature or the power brake throttled the device for more than 1 % of the window",
    "cool the device, and run opcost retry --flag throttled",
    spoils=True,
)
OTHER_PROCESS = _flag(
    "other_process",
    "another process computed on the device",
    "end that process, and run opcost retry --flag other_process",
)
BUSY_WHEN_IDLE = _flag(
    "busy_when_idle",
    "idle power was more than 1.5 times the characterised idle power",
    "end the process that keeps the device busy, or characterise the sensor again",
    spoils=True,
)
PACE_DIFFERS = _flag(
    "pace_differs",
    "an iteration took at least 5 % more time in the power phase than in the timing phase, or an "
    "unknown time, or, on a processor, less; a GPU's power is converted to the timed pace, which "
    "widens its interval",
    "use larger inputs, because reading the sensor delays the launches of launch-bound work; keep "
    "other work off the host",
)
POINT_CHANGED = _flag(
    "point_changed",
    "the power limit, a locked clock or the highest frequency of the cores was another one at the "
    "end of the measurement than at its start: another program set it meanwhile",
    "end that program, and run opcost retry --flag point_changed",
)
ABOVE_ROOF = _flag(
    "above_roof",
    "flops / time_s exceeds the peak of such a device: the FLOPs or the time are wrong",
    "use neither, and report the row's description to opcost",
)
ASSUMED_SENSOR = _flag(
    "assumed_sensor",
    "the power sensor was not, or not completely, characterised",
    "run snakemake --cores 1 characterize",
)
PREDICTED = _flag(
    "predicted",
    "nobody measured this: it is interpolated between rows of the target",
    "see docs/explanation/prediction.md",
)
IMPORTED = _flag(
    "imported", "measured by others, with other methods", "see docs/how_to/databases.md"
)

UNSURE_POWER = {BUSY_WHEN_IDLE, COUNTER_DISAGREES, OTHER_PROCESS, PACE_DIFFERS, THROTTLED}
"""The flags of runs whose power may be another than that of the work as it was timed."""
