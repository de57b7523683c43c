"""Call overhead: the host's time for a call in a model beyond that of its operator's benchmark.

It is measured at the start of a study and in each later round, each time in several processes,
because it depends on the memory layout of the process:

- `call_s`: Python, dispatch and code that is cold in the smallest caches; the difference between
  running a small network as modules and running its operators in loops, as in their benchmarks. On
  a processor, all code is in the private cache.
- `cold_call_s`: as `call_s`, with cold code of Python and of the operator: evicted from the private
  cache (costs/call_overhead.py finds such calls). None on a GPU, where evictions depend on the data
  that the host moves.
- `forward_call_s`, `backward_call_s`, `optimizer_call_s`, `backward_start_s`,
  `optimizer_start_s`: of calls in training, on a processor (training_overhead.py).
- `view_call_s`: a view, which launches no kernel and is not benchmarked.

If a module calls several operators, or functions that do, only the first one contains the module's
call. On a GPU the host runs ahead of the device: costs/host.py uses its overhead.
"""

import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from opcost import statistics
from opcost.devices.device import Device, nothing
from opcost.devices.device_file import Sample
from opcost.devices.disturbance import Watch
from opcost.measuring.training_overhead import training_calls_s
from opcost.models.conditions import inference_conditions

_BLOCKS = 24
_COPIES = 8
_CHANNELS = 48
_SIZE = 28
_REPETITIONS = 20
_MIN_UNDISTURBED = 3
_PATIENCE = 2

_SMALL_CHANNELS = 16
_SMALL_SIZE = 8
_REPEATS = 20
_CORE_CACHES_TO_EVICT = 2

_Values = Callable[[], float]

Call = tuple[Any, tuple[Any, ...]]
"""An operator, and its arguments after the first."""


class _Found(NamedTuple):
    """Medians over the undisturbed repetitions, or over all if too few are (`disturbed`)."""

    medians_s: list[float]
    disturbed: bool


def sample_overhead(device: Device, watch: Watch) -> Sample:
    """The call overhead in this process, as differences of two times.

    A negative difference means that one of the two was disturbed: it becomes zero and disturbed. In
    training it only becomes zero, because some phases add hardly any overhead.
    """
    with inference_conditions():
        torch.manual_seed(0)
        call_s, view_s = _between_calls_s(device), _view_call_s(device)
        if not device.kind.host_sets_pace:
            found = _repeated(lambda: [call_s(), view_s()], watch)
        else:
            cold_s = _cold_call_s(device)
            found = _repeated(lambda: [call_s(), view_s(), cold_s()], watch)
    calls_s = [max(0.0, each_s) for each_s in found.medians_s]
    disturbed = found.disturbed or calls_s != found.medians_s
    if not device.kind.host_sets_pace:
        return Sample(calls_s[0], None, calls_s[1], disturbed)
    training = _repeated(training_calls_s(device), watch)
    return Sample(
        calls_s[0],
        calls_s[2],
        calls_s[1],
        disturbed or training.disturbed,
        *(max(0.0, each_s) for each_s in training.medians_s),
    )


def _between_calls_s(device: Device) -> _Values:
    """The difference per call between modules and their operators, in seconds.

    Both rotate through copies of a network, as end-to-end runs do, to cancel the cost of weights.
    """
    network = nn.Sequential(*(_block(_CHANNELS) for _ in range(_BLOCKS))).eval()
    network = network.to(device.torch_device)
    networks = [network, *(copy.deepcopy(network) for _ in range(_COPIES - 1))]
    calls = [[call for block in network for call in _calls(block)] for network in networks]
    image = torch.randn(1, _CHANNELS, _SIZE, _SIZE).to(device.torch_device)
    turn = itertools.cycle(range(_COPIES))

    def difference_s() -> float:
        modules, sequence = networks[next(turn)], calls[next(turn)]
        modules_s = device.time(lambda: modules(image)).host_s
        return (modules_s - _in_loops_s(device, sequence, image)) / len(sequence)

    return difference_s


def _in_loops_s(device: Device, calls: Sequence[Call], image: torch.Tensor) -> float:
    """Seconds of the calls, each operator in a loop that has run before."""
    total_s = 0.0
    for operator in {operator for operator, _ in calls}:
        loop = [call for call in calls if call[0] is operator]
        _run_sequence(loop, image)
        total_s += device.time(partial(_run_sequence, loop, image)).host_s
    return total_s


def _cold_call_s(device: Device) -> _Values:
    """The overhead of a module call after copying enough data to evict the private cache.

    The mean over a convolution, a normalisation and an activation on little data. ASSUME that other
    operators have about as much code.
    """
    block = _block(_SMALL_CHANNELS).eval()
    image = torch.randn(1, _SMALL_CHANNELS, _SMALL_SIZE, _SMALL_SIZE)
    source = torch.randn(max(1, _CORE_CACHES_TO_EVICT * device.core_cache_bytes // 2 // 4))
    target = torch.empty_like(source)
    modules = list(zip(cast(Iterable[nn.Module], block), _calls(block), strict=True))

    def overhead_s() -> float:
        total_s = 0.0
        for module, (operator, arguments) in modules:
            own_s = device.time(partial(_repeat, operator, image, arguments)).host_s / _REPEATS
            target.copy_(source)
            device.time(nothing)  # the clock's own code was evicted, too
            total_s += device.time(partial(module, image)).host_s - own_s
        return total_s / len(modules)

    return overhead_s


def _view_call_s(device: Device) -> _Values:
    """As models make views: by a method of the tensor, faster than the operator called by name."""
    image = torch.randn(1, _SMALL_CHANNELS, _SMALL_SIZE, _SMALL_SIZE).to(device.torch_device)

    def views() -> None:
        for _ in range(_REPEATS):
            image.view(1, _SMALL_CHANNELS, _SMALL_SIZE**2)

    return lambda: device.time(views).host_s / _REPEATS


def _repeated(measure: Callable[[], Sequence[float]], watch: Watch) -> _Found:
    """Measures values until enough are undisturbed, at most twice as often as needed."""
    values: list[Sequence[float]] = []
    undisturbed: list[bool] = []
    while sum(undisturbed) < _REPETITIONS and len(values) < _PATIENCE * _REPETITIONS:
        watch.look()
        values.append(measure())
        undisturbed.append(watch.look())
    disturbed = sum(undisturbed) < _MIN_UNDISTURBED
    counted = values if disturbed else list(itertools.compress(values, undisturbed))
    columns = zip(*counted, strict=True)
    return _Found([statistics.median(column).value for column in columns], disturbed)


def _block(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, channels, 1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU6(inplace=True),
    )


def _calls(block: Any) -> list[Call]:
    """The operator calls of a block."""
    aten = torch.ops.aten
    conv, norm, _ = block
    moments = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    return [
        (aten.conv2d.default, (conv.weight, None, [1, 1], [0, 0], [1, 1], 1)),
        (aten.batch_norm.default, (*moments, False, norm.momentum, norm.eps, True)),
        (aten.hardtanh_.default, (0.0, 6.0)),
    ]


def _run_sequence(calls: Sequence[Call], image: torch.Tensor) -> None:
    for operator, arguments in calls:
        image = operator(image, *arguments)


def _repeat(operator: Any, image: torch.Tensor, arguments: tuple[Any, ...]) -> None:
    for _ in range(_REPEATS):
        operator(image, *arguments)
