"""Call overhead of a training step: the time of its calls beyond the benchmarks of their operators.

Autograd builds a graph in forward and runs it in backward; optimizers are loops in Python. Both
differ from calls of modules in inference (overhead.py). Two small networks are trained, and
compared with their operators, each of which runs in a loop, as in its benchmark:

- `forward_call_s`: of a call in forward, or of the loss;
- `backward_call_s`: of a call in backward;
- `optimizer_call_s`: of a call in an optimizer, here AdamW;
- `backward_start_s`, `optimizer_start_s`: once for each step, however few calls it has.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from opcost.devices.device import Device
from opcost.models.definition import COMPARED_PHASES, compared_phase
from opcost.models.inputs import Arguments
from opcost.models.operator_calls import OperatorCalls
from opcost.models.training import TrainingStep
from opcost.tuples.description import describe
from opcost.tuples.recorder import launches_kernel
from opcost.tuples.replay import tensors_in_tree

_Call = tuple[Any, tuple[Any, ...], dict[str, Any]]

_BLOCKS, _FEW_BLOCKS = 12, 2
_CHANNELS = 16
_SIZE = 8
_CLASSES = 10


def training_calls_s(device: Device) -> Callable[[], tuple[float, ...]]:
    """Returns a function that measures the overheads in seconds: of a call in each phase, and of
    the start of backward and of the optimizer.

    It trains two small networks, and runs the same operators in loops. The difference between the
    networks is due to their calls; the remainder of the smaller one's overhead is its start.
    """
    large, small = (_measured(device, blocks) for blocks in (_BLOCKS, _FEW_BLOCKS))

    def measure() -> tuple[float, ...]:
        of_large, of_small = large(), small()
        per_call_s, starts_s = [], []
        for phase in COMPARED_PHASES:
            (most_s, most), (least_s, least) = of_large[phase], of_small[phase]
            call_s = (most_s - least_s) / (most - least)
            per_call_s.append(call_s)
            starts_s.append(max(0.0, least_s - least * call_s))
        return (*per_call_s, *starts_s[1:])

    return measure


def _measured(device: Device, blocks: int) -> Callable[[], dict[str, tuple[float, int]]]:
    """Returns a function that measures a network: phase -> seconds beyond operators, and calls."""
    step, inputs = _network(device, blocks)
    with torch.enable_grad():
        step.prepare(inputs)
        rehearsal = Rehearsal(step, device.torch_device)
        with rehearsal:
            step(*inputs.args)
    calls = rehearsal.calls

    def measure() -> dict[str, tuple[float, int]]:
        with torch.enable_grad():
            ends_s = [
                device.time(partial(_call, run, inputs)).host_s
                for run in (step.without_backward, step.without_optimizer, step)
            ]
        begins_s = [0.0, *ends_s[:-1]]
        return {
            phase: (end_s - begin_s - _in_loops_s(device, calls[phase]), len(calls[phase]))
            for phase, begin_s, end_s in zip(COMPARED_PHASES, begins_s, ends_s, strict=True)
        }

    return measure


class Rehearsal(OperatorCalls):
    """Keeps the calls of a training step that launch kernels, with their arguments, by phase."""

    def __init__(self, step: TrainingStep, device: torch.device) -> None:
        super().__init__()
        self._step, self._device = step, device
        self.calls: Mapping[str, list[_Call]] = defaultdict(list)

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        inputs, outputs = tensors_in_tree((args, kwargs)), tensors_in_tree(result)
        operator_tuple = describe(func, args, kwargs)
        if launches_kernel(func, operator_tuple, inputs, outputs, self._device):
            self.calls[compared_phase(self._step.phase)].append((func, args, kwargs))
        return result


def _network(device: Device, blocks: int) -> tuple[TrainingStep, Arguments]:
    layers = [
        layer
        for _ in range(blocks)
        for layer in (
            nn.Conv2d(_CHANNELS, _CHANNELS, 1, bias=False),
            nn.BatchNorm2d(_CHANNELS),
            nn.ReLU6(),
        )
    ]
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(_CHANNELS * _SIZE**2, _CLASSES))
    network = network.train().to(device.torch_device)
    target = torch.zeros(2, dtype=torch.int64).to(device.torch_device)
    step = TrainingStep(
        network,
        lambda output: nn.functional.cross_entropy(output, target),
        torch.optim.AdamW(network.parameters(), lr=0.0),
    )
    image = torch.randn(2, _CHANNELS, _SIZE, _SIZE).to(device.torch_device)
    return step, Arguments([image], {})


def _in_loops_s(device: Device, calls: Sequence[_Call]) -> float:
    """Seconds of the calls, each operator in a loop that has run before."""
    total_s = 0.0
    with torch.inference_mode():
        for operator in {call[0] for call in calls}:
            loop = [call for call in calls if call[0] is operator]
            _run(loop)
            total_s += device.time(partial(_run, loop)).host_s
    return total_s


def _call(run: Callable[..., Any], inputs: Arguments) -> None:
    run(*inputs.args)


def _run(calls: Sequence[_Call]) -> None:
    for operator, args, kwargs in calls:
        operator(*args, **kwargs)
