"""What a call costs on a processor beyond the operator's own time: Python, dispatch, lost code.

No operator benchmark contains it, every model does. It is measured once for a target:

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
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from opcost import statistics
from opcost.devices.device import Device
from opcost.devices.disturbance import Watch
from opcost.models.construction import inference_conditions
from opcost.statistics import Estimate

_BLOCKS = 24
_COPIES = 8
_CHANNELS = 48
_SIZE = 28
_PAIRS = 120
_FEWEST = 6
_PATIENCE = 4

_SMALL_CHANNELS = 16
_SMALL_SIZE = 8
_DISPLACED_CALLS = 120
_ROW = 20

Call = tuple[Any, tuple[Any, ...]]
"""An operator, and its arguments after the first."""


@dataclass(frozen=True)
class Overhead:
    """Seconds that a call costs beyond its operator's own time, with 95 % intervals."""

    call_s: Estimate
    displaced_call_s: Estimate
    view_call_s: Estimate

    def to_document(self) -> dict[str, list[float | None]]:
        """The three as (value, low, high), as JSON data."""
        return {
            name: [estimate.value, estimate.low, estimate.high]
            for name, estimate in vars(self).items()
        }


def measure_overhead(device: Device, watch: Watch) -> Overhead | None:
    """The overhead of calls on a processor; None on a GPU."""
    if device.torch_device.type != "cpu":
        return None
    with inference_conditions():
        torch.manual_seed(0)
        call_s = _between_calls_s(device, watch)
        return Overhead(call_s, _displaced_call_s(device, watch), _view_call_s(device, watch))


def _between_calls_s(device: Device, watch: Watch) -> Estimate:
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

    return _undisturbed_median(difference_s, _PAIRS, watch)


def _displaced_call_s(device: Device, watch: Watch) -> Estimate:
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

    return _undisturbed_median(beyond_s, _DISPLACED_CALLS, watch)


def _view_call_s(device: Device, watch: Watch) -> Estimate:
    image = torch.randn(1, _SMALL_CHANNELS, _SMALL_SIZE, _SMALL_SIZE)
    shape = ([1, _SMALL_CHANNELS, _SMALL_SIZE**2],)
    view = torch.ops.aten.view.default

    def row_s() -> float:
        return device.time(lambda: _repeat(view, image, shape)).device_s / _ROW

    return _undisturbed_median(row_s, _PAIRS, watch)


def _undisturbed_median(measure: Callable[[], float], count: int, watch: Watch) -> Estimate:
    """The median over `count` undisturbed measurements, for which it waits as long as four times as
    many take. Over all of them, where hardly any was undisturbed: so are the operators' then, and
    their rows are flagged.
    """
    values: list[float] = []
    undisturbed: list[bool] = []
    watch.look()
    while sum(undisturbed) < count and len(values) < _PATIENCE * count:
        values.append(measure())
        undisturbed.append(watch.look())
    counted = list(itertools.compress(values, undisturbed))
    return statistics.median(counted if len(counted) >= _FEWEST else values)


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
