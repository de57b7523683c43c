"""What lies between the operator calls of a model on a processor: Python, and the call of modules.

No operator contains it, every model does. It is measured once for a target, on a small network of
a usual shape: run as a module, and run as the same operator calls in a row. On a GPU the host runs
ahead of the device: what it does between two calls costs nothing, or makes the model launch-bound.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import nn

from opcost import statistics
from opcost.device import Device
from opcost.disturbance import Watch
from opcost.models import inference_conditions
from opcost.statistics import Estimate

_BLOCKS = 24
_CHANNELS = 48
_SIZE = 28
_PAIRS = 120
_FEWEST_PAIRS = 6


def between_calls_s(device: Device, watch: Watch) -> Estimate | None:
    """Seconds between two operator calls of a model, with their interval; None on a GPU.

    Undisturbed pairs count; all of them, where too few are.
    """
    if device.torch_device.type != "cpu":
        return None
    with inference_conditions():
        torch.manual_seed(0)
        network = _network().eval()
        image = torch.randn(1, _CHANNELS, _SIZE, _SIZE)
        calls = _calls(network)
        differences, undisturbed = [], []
        for _ in range(_PAIRS):
            watch.look()
            as_module = device.time(lambda: network(image)).device_s
            in_a_row = device.time(lambda: _in_a_row(calls, image)).device_s
            differences.append((as_module - in_a_row) / len(calls))
            undisturbed.append(watch.look())
    counted = list(itertools.compress(differences, undisturbed))
    return statistics.median(counted if len(counted) >= _FEWEST_PAIRS else differences)


def _network() -> nn.Sequential:
    return nn.Sequential(
        *(
            nn.Sequential(
                nn.Conv2d(_CHANNELS, _CHANNELS, 1, bias=False),
                nn.BatchNorm2d(_CHANNELS),
                nn.ReLU6(inplace=True),
            )
            for _ in range(_BLOCKS)
        )
    )


def _calls(network: nn.Sequential) -> list[tuple[Any, tuple[Any, ...]]]:
    """The operator calls of the network, each without its first argument."""
    aten = torch.ops.aten
    calls: list[tuple[Any, tuple[Any, ...]]] = []
    for block in network:
        conv, norm, _ = cast(Iterable[nn.Module], block)
        calls += [
            (aten.conv2d.default, (conv.weight, None, [1, 1], [0, 0], [1, 1], 1)),
            (
                aten.batch_norm.default,
                (
                    *(norm.weight, norm.bias, norm.running_mean, norm.running_var),
                    *(False, norm.momentum, norm.eps, True),
                ),
            ),
            (aten.hardtanh_.default, (0.0, 6.0)),
        ]
    return calls


def _in_a_row(calls: Sequence[tuple[Any, tuple[Any, ...]]], image: torch.Tensor) -> None:
    for operator, arguments in calls:
        image = operator(image, *arguments)
