"""What a call costs on a processor beyond the operator's own time: Python, dispatch, lost code.

No operator benchmark contains it, every model does. It is measured when a study begins and when it
ends, each time in several processes, because each finds memory in other places and so another
overhead:

- `call_s`: between two calls whose code the core's own cache still holds. A small network, run as
  modules and run as the same operator calls in a row.
- `displaced_call_s`: where the operators in between moved so much data that the core's own cache
  has lost the code, of Python and of the operator (displacement.py says which calls these are).
- `view_call_s`: a view, which launches no kernel and has no benchmark.

On a GPU the host runs ahead of the device: what it does between two calls costs nothing, or makes
the model launch-bound.
"""

import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from opcost import statistics
from opcost.devices.device import Device
from opcost.devices.device_file import Sample
from opcost.devices.disturbance import Watch
from opcost.models.construction import inference_conditions

_BLOCKS = 24
_COPIES = 8
_CHANNELS = 48
_SIZE = 28
_REPETITIONS = 20
_FEWEST = 3
_PATIENCE = 2

_SMALL_CHANNELS = 16
_SMALL_SIZE = 8
_ROW = 20

Call = tuple[Any, tuple[Any, ...]]
"""An operator, and its arguments after the first."""


def sample_overhead(device: Device, watch: Watch) -> Sample:
    """The overhead of calls on a processor, as this process finds it.

    It is the difference of two times, and no call costs less than its operator: where the
    difference is below zero, something disturbed one of the two, and it counts as zero
    and disturbed.
    """
    watch.look()
    with inference_conditions():
        torch.manual_seed(0)
        call_s, call_disturbed = _undisturbed_median(_between_calls_s(device), watch)
        displaced_s, displaced_disturbed = _undisturbed_median(_displaced_call_s(device), watch)
        view_s, view_disturbed = _undisturbed_median(_view_call_s(device), watch)
    disturbed = call_disturbed or displaced_disturbed or view_disturbed
    impossible = call_s < 0 or displaced_s < 0
    return Sample(max(0.0, call_s), max(0.0, displaced_s), view_s, disturbed or impossible)


def _between_calls_s(device: Device) -> Callable[[], float]:
    """Of a network that rotates through copies, as whole models do; weights are no difference."""
    network = nn.Sequential(*(_block(_CHANNELS) for _ in range(_BLOCKS))).eval()
    networks = [network, *(copy.deepcopy(network) for _ in range(_COPIES - 1))]
    calls = [[call for block in network for call in _calls(block)] for network in networks]
    image = torch.randn(1, _CHANNELS, _SIZE, _SIZE)
    turn = itertools.cycle(range(_COPIES))

    def difference_s() -> float:
        as_modules, in_a_row = networks[next(turn)], calls[next(turn)]
        modules_s = device.time(lambda: as_modules(image)).device_s
        row_s = device.time(lambda: _in_a_row(in_a_row, image)).device_s
        return (modules_s - row_s) / len(in_a_row)

    return difference_s


def _displaced_call_s(device: Device) -> Callable[[], float]:
    """Module calls on next to no data, each after as much was copied as the core's cache holds, in
    the mean over a convolution, a normalisation and an activation; less their operators' own time.

    ASSUME that other operators have about as much code.
    """
    block = _block(_SMALL_CHANNELS).eval()
    image = torch.randn(1, _SMALL_CHANNELS, _SMALL_SIZE, _SMALL_SIZE)
    source = torch.randn(max(1, device.core_cache_bytes // 2 // 4))
    target = torch.empty_like(source)
    modules = list(zip(cast(Iterable[nn.Module], block), _calls(block), strict=True))

    def beyond_s() -> float:
        total_s = 0.0
        for module, (operator, arguments) in modules:
            row_s = device.time(partial(_repeat, operator, image, arguments)).device_s / _ROW
            target.copy_(source)
            total_s += device.time(partial(module, image)).device_s - row_s
        return total_s / len(modules)

    return beyond_s


def _view_call_s(device: Device) -> Callable[[], float]:
    image = torch.randn(1, _SMALL_CHANNELS, _SMALL_SIZE, _SMALL_SIZE)
    shape = ([1, _SMALL_CHANNELS, _SMALL_SIZE**2],)
    view = torch.ops.aten.view.default

    def row_s() -> float:
        return device.time(lambda: _repeat(view, image, shape)).device_s / _ROW

    return row_s


def _undisturbed_median(measure: Callable[[], float], watch: Watch) -> tuple[float, bool]:
    """The median over undisturbed measurements, for which it waits as long as twice as many take;
    over all, and True, if hardly any was undisturbed.
    """
    values: list[float] = []
    undisturbed: list[bool] = []
    while sum(undisturbed) < _REPETITIONS and len(values) < _PATIENCE * _REPETITIONS:
        values.append(measure())
        undisturbed.append(watch.look())
    counted = list(itertools.compress(values, undisturbed))
    disturbed = len(counted) < _FEWEST
    return statistics.median(values if disturbed else counted).value, disturbed


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


def _in_a_row(calls: Sequence[Call], image: torch.Tensor) -> None:
    for operator, arguments in calls:
        image = operator(image, *arguments)


def _repeat(operator: Any, image: torch.Tensor, arguments: tuple[Any, ...]) -> None:
    for _ in range(_ROW):
        operator(image, *arguments)
