"""What the flags of measurements mean, in a sentence each.

docs/explanation/time.md and docs/explanation/energy.md say what to do about them.
"""

MEANINGS = {
    "disturbed": "more than half of the batches were disturbed, or disturbed ones had to count",
    "sentinel_quicker": "the core was slower when the study began: disturbances pass for silence",
    "drifting": "the first and the second half of the batches differ",
    "launch_bound": "the GPU waited for its host: the time is that of launching",
    "footprint_within_cache": "too little memory to leave the cache: the time is a lower limit",
    "degenerate_values": "values ran off to infinity or NaN",
    "state_changed": "the model's code changed settings of PyTorch, which were set back",
    "calls_vary": "the model executes other calls from run to run",
    "value_dependent": "the sizes depend on values: it stands for the recorded input only",
    "power_not_converged": "the interval of power is wider than asked for",
    "power_drifting": "power changed over the window",
    "power_unsteady": "the scatter of power grew, so its interval is too narrow",
    "counter_disagrees": "energy counter and power readings differ by more than they may",
    "power_capped": "held back by the power limit",
    "throttled": "held back by temperature or the power brake",
    "other_process": "another process computed on the device",
    "busy_when_idle": "the idle device used more power than it did when characterised",
    "too_few_refreshes": "the power sensor refreshed too seldom",
    "phases_not_covered": "iterations too long to meet the sensor at all of its phases",
    "pace_differs": "iterations took another time under power than when timed",
    "assumed_sensor": "the power sensor was not, or not wholly, characterised",
}


def meaning(flag: str) -> str:
    """What a flag means, in a sentence."""
    return MEANINGS.get(flag, "a flag that this version does not know")
