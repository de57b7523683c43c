"""The flags of rows: what each means, what to do about it, and what follows from it.

A flag is defined here and raised where it is found; nothing else spells its name.
docs/reference/flags.md is made from this file.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Flag(NamedTuple):
    """`spoils`: the cause is passing and physical, so the trial is repeated.

    `reproduces`: the row reproduces as well as one without the flag, so `diff` does not doubt it.
    """

    meaning: str
    remedy: str
    spoils: bool
    reproduces: bool


FLAGS: dict[str, Flag] = {}
"""Every flag by its name."""


def spoiled(names: Iterable[str]) -> bool:
    """Whether a trial with these flags is to be repeated."""
    return any(FLAGS[name].spoils for name in names)


def doubtful(names: Iterable[str]) -> bool:
    """Whether a row with these flags may reproduce worse than others; an unknown flag counts."""
    return any(name not in FLAGS or not FLAGS[name].reproduces for name in names)


def meaning(name: str) -> str:
    """What a flag means, in a sentence."""
    return FLAGS[name].meaning if name in FLAGS else "a flag that this version does not know"


def explained(name: str) -> str:
    """What a flag means, and what to do about it."""
    remedy = FLAGS[name].remedy if name in FLAGS else ""
    return f"{meaning(name)}; {remedy}" if remedy else meaning(name)


def _flag(
    name: str, meaning: str, remedy: str = "", spoils: bool = False, reproduces: bool = False
) -> str:
    FLAGS[name] = Flag(meaning, remedy, spoils, reproduces)
    return name


DISTURBED = _flag(
    "disturbed",
    "something else slowed the core in more than half of the batches, or in so many that disturbed "
    "ones had to count",
    "delete the row's file in results and run again on a quiet machine",
    # A row that converged did so on its undisturbed batches (docs/how_to/query.md); one that had
    # too few of them has not converged.
    reproduces=True,
)
SENTINEL_QUICKER = _flag(
    "sentinel_quicker",
    "the core is faster than when the study began: its baseline was disturbed, so disturbances go "
    "unnoticed",
    "delete the target's folder in results and run again",
)
DRIFTING = _flag(
    "drifting",
    "the undisturbed batches of the first and of the second half have medians whose intervals do "
    "not overlap",
    "raise warm_up_s or min_time_s",
)
LAUNCH_BOUND = _flag(
    "launch_bound",
    "the GPU waited for its host: the time is that of launching",
    "use larger inputs, if they are what you mean to measure",
    reproduces=True,
)
FOOTPRINT_WITHIN_CACHE = _flag(
    "footprint_within_cache",
    "too little memory was free to evict the operands from the cache, as cache state cold asks",
    "read the time as a lower limit",
    reproduces=True,
)
DEGENERATE_VALUES = _flag("degenerate_values", "values became infinite or NaN", reproduces=True)
VALUE_DEPENDENT = _flag(
    "value_dependent",
    "the sizes depend on values: the row stands for the recorded input only",
    reproduces=True,
)
STATE_CHANGED = _flag(
    "state_changed",
    "the model's code changed settings of the process, such as threads or TF32; they were set back "
    "to the target's before timing",
    "leave them to the target",
)
CALLS_VARY = _flag(
    "calls_vary",
    "the model executes other calls in later runs than in its first: its sum over operators is "
    "that of another run",
    "measure a model without that branch or counter",
)
TOO_FEW_REFRESHES = _flag(
    "too_few_refreshes",
    "the power sensor gave fewer than 8 different readings: it is stuck, too slow or too coarse",
    "look at power_sample_w",
)
POWER_DRIFTING = _flag(
    "power_drifting",
    "power changed over the window by more than power_relative_ci",
    "let the device warm up: raise power_lead_in_max_s",
)
POWER_UNSTEADY = _flag(
    "power_unsteady",
    "the scatter of power grew after the first stage, so its interval is too narrow",
    "look for what else runs, and measure again",
)
PHASES_NOT_COVERED = _flag(
    "phases_not_covered",
    "an iteration is too long to be started at four phases of the power sensor within power_max_s",
    "raise power_max_s",
)
POWER_NOT_CONVERGED = _flag(
    "power_not_converged",
    "the interval of power is wider than power_relative_ci; the row is valid, and says how wide",
    "raise power_max_s",
)
COUNTER_DISAGREES = _flag(
    "counter_disagrees",
    "energy counter and power readings differ by more than they may",
    "do not trust either: look at counter_power_w and sensor.json",
)
POWER_CAPPED = _flag(
    "power_capped",
    "the power limit held the clock down for more than 1 % of the window",
    "it is the operating point: compare with rows of the same limit only",
)
THROTTLED = _flag(
    "throttled",
    "temperature or the power brake held the device back",
    "cool the device",
    spoils=True,
)
OTHER_PROCESS = _flag(
    "other_process", "another process computed on the device", "end it", spoils=True
)
BUSY_WHEN_IDLE = _flag(
    "busy_when_idle",
    "the idle device used more than 1.5 times the power that it used when characterised",
    "end what keeps it busy, or characterise it again",
    spoils=True,
)
PACE_DIFFERS = _flag(
    "pace_differs",
    "iterations took 5 % more or less time under power than when timed",
    "of launch-bound work, reading the sensor delays the launches: use larger inputs",
)
ASSUMED_SENSOR = _flag(
    "assumed_sensor",
    "the power sensor was not, or not wholly, characterised",
    "run snakemake --cores 1 characterize",
    reproduces=True,
)
IMPORTED = _flag("imported", "others measured it, by other methods", "see docs/how_to/import.md")
