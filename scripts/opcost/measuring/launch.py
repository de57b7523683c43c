"""Launch modes: how a model is run end to end.

- `eager`: as PyTorch runs it, call by call.
- `graph`: a CUDA graph of all calls, without the host's part of them.
- `compiled`: by `torch.compile`, which fuses operators.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from opcost.devices.device import Device, NotCapturable
from opcost.launch_modes import EAGER
from opcost.measuring.timing import Workload
from opcost.measuring.workload import ModelWorkload
from opcost.tuples.replay import UnsupportedOperator


class GraphWorkload:
    """Replays the graphs of a model, one for each of its copies."""

    in_use = True

    def __init__(self, replays: Sequence[Callable[[], None]]) -> None:
        self.rotation = len(replays)
        self._next = itertools.cycle(replays)

    def run(self, iterations: int) -> None:
        """Replay the next graphs."""
        for replay in itertools.islice(self._next, iterations):
            replay()


def _graph(workload: ModelWorkload, device: Device) -> GraphWorkload:
    workload.run(1)  # initialisation in the first call cannot be captured
    try:
        return GraphWorkload(device.capture([partial(workload.run, 1)] * workload.rotation))
    except NotCapturable as reason:
        raise UnsupportedOperator(str(reason)) from None


def _compiled(workload: ModelWorkload, device: Device) -> ModelWorkload:
    from torch._inductor import config

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    torch.compiler.set_stance("default")
    # Other processes would compete with the measurement.
    with config.patch(compile_threads=1):
        compiled = workload.called_by(torch.compile(call, dynamic=False))
        compiled.run(workload.rotation)
    return compiled


LAUNCHES: Mapping[str, Callable[[ModelWorkload, Device], Workload]] = {
    "eager": lambda workload, device: workload,
    "graph": _graph,
    "compiled": _compiled,
}
"""Launch mode -> function that applies it to a model's workload."""


def launched(workload: ModelWorkload, device: Device, mode: str) -> Workload:
    """A model's workload in a launch mode. Raises UnsupportedOperator if that is impossible."""
    if workload.trained and mode != EAGER:
        raise UnsupportedOperator(f"launch mode {mode} is for inference, not for training")
    return LAUNCHES[mode](workload, device)
