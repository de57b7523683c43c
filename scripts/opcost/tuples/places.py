"""Where in a model a call is made: its module, and the phase of a training step."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from opcost.models.phases import FORWARD

_NEWEST = 2**64 - 1
"""The sequence number of a node that accumulates the gradient of a parameter."""


class Place(NamedTuple):
    """The path of a module (`layer1.0.conv1`; "" for the model itself), its class, and the
    phase."""

    module_path: str
    module_class: str
    phase: str = FORWARD


@contextmanager
def places(
    model: nn.Module, phase: Callable[[], str] = lambda: FORWARD
) -> Iterator[Callable[[], Place]]:
    """Yields a function that returns where the model is.

    A call of backward belongs to the module whose forward made its node of the autograd graph.
    """
    running = _Running(model)
    with ExitStack() as hooks:
        hooks.enter_context(module_hooks.register_module_forward_pre_hook(running.enter))
        hooks.enter_context(module_hooks.register_module_forward_hook(running.leave))
        yield lambda: Place(*running.module(), phase())


_Module = tuple[str, str]


class _Running:
    """The modules that are running, and those that ran when nodes of the graph were made."""

    def __init__(self, model: nn.Module) -> None:
        modules = dict(model.named_modules())
        self._paths = {id(module): path for path, module in modules.items()}
        self._owners = {
            id(parameter): (path, type(module).__name__)
            for path, module in modules.items()
            for parameter in module._parameters.values()
        }
        self._stack: list[_Module] = [("", type(model).__name__)]
        # From each of these sequence numbers on, nodes are of the module at the same position.
        self._first_nodes: list[int] = [0]
        self._modules: list[_Module] = [self._stack[0]]

    def enter(self, module: nn.Module, _inputs: Any) -> None:
        # A module created inside forward has no path.
        path = self._paths.get(id(module), self._stack[-1][0])
        self._stack.append((path, type(module).__name__))
        self._mark()

    def leave(self, _module: nn.Module, _inputs: Any, _output: Any) -> None:
        self._stack.pop()
        self._mark()

    def module(self) -> _Module:
        node = torch._C._current_autograd_node()
        # Checkpoints run modules again in backward.
        if node is None or len(self._stack) > 1:
            return self._stack[-1]
        number = node._sequence_nr()
        if number >= _NEWEST:
            return self._owners.get(id(getattr(node, "variable", None)), self._stack[0])
        return self._modules[bisect_right(self._first_nodes, number) - 1]

    def _mark(self) -> None:
        self._first_nodes.append(torch.autograd._get_sequence_nr())
        self._modules.append(self._stack[-1])
