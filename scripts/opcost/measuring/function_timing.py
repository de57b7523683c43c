"""Time any function in this process, or compare two: `opcost.time`, `compare` and `time_over`.

A measurement has up to twelve runs, one after another, and a run some blocks of iterations, of
which those with interference do not count. Blocks of two functions take turns (f g g f), on the
same copies of arguments: drift of the machine, and places in memory, which make 5 % of difference,
are alike for both. Intervals are those of the median over runs, because blocks of the same moment
are too alike.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Self

import torch

from opcost import noise, statistics
from opcost.devices.device import Device, find_device
from opcost.devices.disturbance import ThreadWatch, elapsed_and_waited_by_all_s
from opcost.energy.load import SYSTEM_CLOCK
from opcost.energy.meter import MeterUnavailable
from opcost.energy.meters import every_meter, open_meter, unseen
from opcost.errors import OpcostError, closest
from opcost.measuring.functions import Function, copied, copies, place_of
from opcost.measuring.timing import WAITS, warm_up
from opcost.measuring.trial import no_garbage_collection
from opcost.noise import Runs, Variation, block_error, disagree
from opcost.power import windows
from opcost.rows.quantities import ENERGY, TIME
from opcost.rows.runs import usual_sd
from opcost.statistics import Estimate
from opcost.text import counted, joules, seconds, significant, with_interval
from opcost.values import BOOLEAN, STRING, check_values, number, one_of, optional, shown

if TYPE_CHECKING:
    import pandas as pd

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")
_RUNS, _LEAST_RUNS = 12, 6
_WARM_UP_SHARE, _LEAD_IN_SHARE = 0.1, 0.3
_RULES = {
    "cache": one_of("cold", "warm"),
    "max_time_s": number(0, above=True),
    "precision": number(0, 1, above=True),
    "device": optional(STRING),
    "energy": BOOLEAN,
}


@dataclass(frozen=True)
class Options:
    """How to time functions, as `opcost.time` describes. Raises OpcostError for other values."""

    cache: str = "cold"
    max_time_s: float = 1.0
    precision: float = 0.01
    device: str | None = None
    energy: bool = True

    def __post_init__(self) -> None:
        check_values(vars(self), _RULES, "the options of opcost.time", "change it")
        if self.device is not None and not _DEVICE.fullmatch(self.device):
            raise OpcostError(f"device is {self.device!r}; allowed: cpu, cuda or cuda:N")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The options of keyword arguments. Raises OpcostError for others."""
        for name in given.keys() - _RULES.keys():
            raise OpcostError(f"{name!r} is no option of opcost.time. {closest(name, _RULES)}")
        return cls(**given)


@dataclass(frozen=True)
class FunctionTime:
    """A call of a function: `time` in seconds and `energy` in joules, with 95 % intervals.

    `energy` is None for `energy_reason`. `runs_s` are the seconds of a call in each run that
    counts; `calls` is the number of all timed calls. On a GPU, `time` is the device's, and
    `host_time` the host's, to launch it. `cache` is "cold" or "warm"; `threads` is PyTorch's
    number of them on the host; `notes` qualify the numbers.
    """

    name: str
    time: Estimate
    energy: Estimate | None
    energy_reason: str | None
    runs_s: tuple[float, ...]
    host_time: Estimate | None
    calls: int
    cache: str
    threads: int
    device: str
    device_name: str
    notes: tuple[str, ...]

    def __str__(self) -> str:
        costs = [with_interval(self.time, seconds, self.runs_s)]
        costs += [with_interval(self.energy, joules)] if self.energy is not None else []
        threads = counted(self.threads, "thread")
        where = f"{threads}, {self.device_name}" if self.host_time is None else self.device_name
        about = f"{self.cache} cache, {counted(self.calls, 'call')}, {where}"
        return "\n".join([f"{', '.join(costs)} ({about})", *self.notes])


@dataclass(frozen=True)
class FunctionComparison:
    """Two functions, and the `ratio` of the first's time to the second's, with a 95 % interval."""

    first: FunctionTime
    second: FunctionTime
    ratio: Estimate

    @property
    def verdict(self) -> str:
        """Whether the first is "faster" or "slower", "not distinguishable" if the interval of the
        ratio contains 1, or "unknown" if it has none.
        """
        if self.ratio.low is None:
            return "unknown"
        if statistics.overlap(self.ratio, Estimate(1.0, 1.0, 1.0)):
            return "not distinguishable"
        return "faster" if self.ratio.value < 1 else "slower"

    def __str__(self) -> str:
        ratio = with_interval(self.ratio, significant)
        head = f"{self.verdict}: the first takes {ratio} of the time of the second"
        return "\n".join([head, *(f"{each.name}: {each}" for each in (self.first, self.second))])


def compare(
    first: Callable[..., Any],
    second: Callable[..., Any],
    args: tuple[Any, ...],
    options: Options,
) -> FunctionComparison:
    """Two functions, timed in turns. Raises OpcostError, as `opcost.compare` describes."""
    [one, other], ratio = measure([first, second], args, options)
    return FunctionComparison(one, other, ratio)


def time_over(
    grid: Mapping[str, Sequence[Any]], make: Callable[..., Any], options: Options
) -> "pd.DataFrame":
    """A table of times. Raises OpcostError, as `opcost.time_over` describes."""
    import pandas as pd

    lists = grid.values() if isinstance(grid, Mapping) else [None]
    if any(isinstance(each, str) or not isinstance(each, Iterable) for each in lists):
        raise OpcostError(f"the grid is {shown(grid)}: give lists by name: {{'n': [64, 128]}}")
    if taken := {*TIME.names, *ENERGY.names, "threads", "notes"}.intersection(grid):
        raise OpcostError(f"the table has columns {', '.join(taken)}: name the grid otherwise")
    rows = []
    for values in itertools.product(*grid.values()):
        at = dict(zip(grid, values, strict=True))
        made = make(**at)
        if not isinstance(made, tuple) or not made:
            raise OpcostError(
                f"for {at}, {shown(made)} was returned: return a function and its arguments, as in "
                "lambda n: (torch.sum, torch.ones(n))"
            )
        [each], _ = measure(made[:1], made[1:], options)
        costs = TIME.columns(each.time) | ENERGY.columns(each.energy)
        rows.append({**at, **costs, "threads": each.threads, "notes": "; ".join(each.notes)})
    return pd.DataFrame(rows)


def measure(
    functions: Sequence[Any], args: tuple[Any, ...], options: Options
) -> tuple[list[FunctionTime], Estimate]:
    """Each function, and the ratio of the first's time to the last's. Raises OpcostError."""
    index = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    with torch.accelerator.device_index(index), no_garbage_collection():
        args, notes = copied(args) if options.cache == "cold" else (args, [])
        cache = "warm" if notes else options.cache
        timed = [Function(each, args) for each in functions]
        device = find_device(options.device or place_of(args, timed))
        sets = [args] if cache == "warm" else copies(args, device, notes)
        turns, run_s = itertools.cycle(sets), options.max_time_s / len(timed) / _RUNS
        for each in timed:
            each.begin(len(sets), turns, device, run_s)
        runs, disturbed = _runs(timed, device, options)
        notes += ["disturbed: other programs used this processor core"] if disturbed else []
        if len(runs) == 1:
            notes.append(f"interval unknown: longer than max_time_s, {seconds(options.max_time_s)}")
        found = []
        for place, each in enumerate(timed):
            times_s, hosts_s = zip(*(run[place] for run in runs), strict=True)
            time, host, own = _as_run(_estimated(times_s)), None, [*notes, *each.notes]
            if disagree(Runs(times_s, [None] * len(times_s)), Variation(usual_sd(None, TIME))):
                own.append(f"runs disagree: {seconds(min(times_s))} to {seconds(max(times_s))}")
            if not device.kind.host_sets_pace:
                host = _estimated(hosts_s)
                own += _of_host(each, time, host)
            none = None, "not measured: energy is False"
            energy, reason = _energy(each, device, options.max_time_s) if options.energy else none
            found.append(
                FunctionTime(
                    *(each.name, time, energy, reason, times_s, host, each.calls),
                    *(cache, torch.get_num_threads(), device.name, device.model_name, tuple(own)),
                )
            )
    return found, _estimated([_ratio(run) for run in runs])


_Run = list[tuple[float, float]]
"""Of each function, the medians over blocks: seconds of a call on the device, and to launch it."""


def _ratio(run: _Run) -> float:
    return run[0][0] / run[-1][0]


def _medians(blocks: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return median(device_s for device_s, _ in blocks), median(host_s for _, host_s in blocks)


def _runs(timed: Sequence[Function], device: Device, options: Options) -> tuple[list[_Run], bool]:
    """Runs until the interval is narrow enough, or time is up, and whether they are disturbed.

    What counts is the blocks without interference, as far as there are enough.
    """
    if sum(max(each.first) for each in timed) >= options.max_time_s:
        return [[each.first for each in timed]], False
    for each in timed:
        warm_up(each, device, each.iterations, _WARM_UP_SHARE * options.max_time_s / len(timed))
        each.calls = 0
    watch = device.watch(None)
    if device.kind.host_sets_pace:
        one = torch.get_num_threads() == 1
        watch = ThreadWatch(None if one else elapsed_and_waited_by_all_s)
    start_s, known = SYSTEM_CLOCK.now_s(), False
    runs: list[_Run] = []
    undisturbed: list[_Run] = []
    while not known and SYSTEM_CLOCK.now_s() - start_s < options.max_time_s:
        blocks: list[list[tuple[float, float]]] = [[] for _ in timed]
        quiet: list[list[tuple[float, float]]] = [[] for _ in timed]
        orders = itertools.cycle([range(len(timed)), range(len(timed))[::-1]])
        until_s = SYSTEM_CLOCK.now_s() + options.max_time_s / _RUNS
        while not blocks[0] or SYSTEM_CLOCK.now_s() < until_s:
            for place in next(orders):
                watch.look()
                block = timed[place].block()
                blocks[place].append(block)
                quiet[place] += [block] if watch.look() else []
        runs.append([_medians(own or every) for own, every in zip(quiet, blocks, strict=True)])
        undisturbed += runs[-1:] if all(quiet) else []
        counted = undisturbed if len(undisturbed) >= _LEAST_RUNS else runs
        decisive = _estimated([_ratio(run) if timed[1:] else run[0][0] for run in counted])
        half = decisive.relative_half_width
        known = len(runs) >= _LEAST_RUNS and half is not None and half <= options.precision
    return counted, len(undisturbed) < min(_LEAST_RUNS, len(runs))


def _estimated(values: Sequence[float]) -> Estimate:
    """The median of the runs; the mean of few, of which a median has no interval."""
    many = len(values) >= _LEAST_RUNS
    return statistics.median(values) if many else statistics.mean(values)


def _as_run(time: Estimate) -> Estimate:
    """In an interval that also holds how processes usually vary, as that of a row of one run."""
    if (error := block_error(time)) is None:
        return time
    usual = Variation(usual_sd(None, TIME))
    return noise.with_interval(time.value, Runs([time.value], [error]), usual)


def _of_host(function: Function, time: Estimate, host: Estimate) -> list[str]:
    """Notes of the host that launches a function."""
    if function.timer.host_reason == WAITS:
        return ["it waits for the device: its time includes the host"]
    launch_bound = host.value >= time.value
    return [f"the host takes longer, to launch it: {seconds(host.value)}"] if launch_bound else []


def _energy(
    function: Function, device: Device, length_s: float
) -> tuple[Estimate | None, str | None]:
    """Joules of a call in a window of calls one after another, or why they are unknown."""
    kind, name = device.kind.name, device.name
    if torch.version.hip and not device.kind.is_processor:
        kind, name = "amd", f"amd:{device.torch_device.index}"
    meters, missing = every_meter()
    if name not in meters:
        return None, missing.get(kind) or unseen(kind) or f"no energy sensor of {name} was found"
    try:
        open_meter(*meters[name])
    except MeterUnavailable as unavailable:
        return None, str(unavailable)
    warm_up(function, device, function.iterations, _LEAD_IN_SHARE * length_s)
    window, calls = windows.start(function.name), 0
    while window.time_s < length_s:
        function.run(function.iterations)
        device.synchronise()
        calls += function.iterations
    window.stop()
    found = window.devices[name]
    return found.energy and found.energy.times(1 / calls), found.reason
