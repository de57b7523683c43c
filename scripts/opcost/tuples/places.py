"""Where in a model a call is made: its module, and the phase of a training step."""

import threading
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from opcost.groups import grouped
from opcost.models.definition import FORWARD

_NEWEST = 2**64 - 1
"""The sequence number of a node that accumulates the gradient of a parameter."""


class Place(NamedTuple):
    """A module's path (`layer1.0.conv1`; "" for the model itself), its class, and the phase."""

    module_path: str
    module_class: str
    phase: str = FORWARD


@contextmanager
def places(
    model: nn.Module, phase: Callable[[], str] = lambda: FORWARD
) -> Iterator[Callable[[], Place]]:
    """Yields a function that returns the model's present place.

    A call of backward belongs to the module whose forward made its node of the autograd graph.
    """
    running = _Running(model)
    with ExitStack() as hooks:
        hooks.enter_context(module_hooks.register_module_forward_pre_hook(running.enter))
        # Also if forward raises: checkpoints end recomputations early, models retry.
        hooks.enter_context(
            module_hooks.register_module_forward_hook(running.leave, always_call=True)
        )
        yield lambda: Place(*running.module(), phase())


def raised_in(error: BaseException, model: nn.Module) -> tuple[str, str]:
    """The path and the class of the innermost module whose forward raised an error."""
    paths = {id(module): path for path, module in model.named_modules()}
    path, name = "", type(model).__name__
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is nn.Module._call_impl.__code__:
            module = frame.f_locals["self"]
            path, name = paths.get(id(module), path), type(module).__name__
    return path, name


_Module = tuple[str, str]


class _Running:
    """The modules that are running, and those that ran when nodes of the graph were made.

    Hooks are called in every thread; only threads whose calls are recorded count, which have a
    dispatch mode.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = model.named_modules(remove_duplicate=False)
        self._paths = grouped((id(module), path) for path, module in modules)
        self._owners = {
            id(parameter): (path, type(module).__name__)
            for path, module in model.named_modules()
            for parameter in module._parameters.values()
        }
        self._stack: list[_Module] = [("", type(model).__name__)]
        # The modules above the first, and whether each was entered by a node of the graph.
        self._entered: list[tuple[int, bool]] = []
        self._thread = threading.get_ident()
        # From each of these sequence numbers on, nodes belong to the module at the same position.
        self._first_nodes: list[int] = [0]
        self._modules: list[_Module] = [self._stack[0]]

    def enter(self, module: nn.Module, _inputs: Any) -> None:
        if not torch._C._len_torch_dispatch_stack():
            return
        # A module created inside forward has no path; a shared one has that inside its caller.
        outer = self._stack[-1][0]
        paths = self._paths.get(id(module), [outer])
        path = next((path for path in paths if path.startswith(f"{outer}.")), paths[0])
        self._entered.append((id(module), torch._C._current_autograd_node() is not None))
        self._stack.append((path, type(module).__name__))
        self._mark()

    def leave(self, module: nn.Module, _inputs: Any, _output: Any) -> None:
        known = any(id(module) == each for each, _ in self._entered)
        if not known or not torch._C._len_torch_dispatch_stack():
            return
        # Modules entered since then were left by an error that calls no hooks.
        while self._entered.pop()[0] != id(module):
            self._stack.pop()
        self._stack.pop()
        self._mark()

    def module(self) -> _Module:
        node = torch._C._current_autograd_node()
        # Checkpoints run modules again in backward; forward may run its own backward.
        if node is None or (self._entered and self._entered[-1][1]):
            return self._stack[-1]
        number = node._sequence_nr()
        if number >= _NEWEST:
            return self._owners.get(id(getattr(node, "variable", None)), self._stack[0])
        return self._modules[bisect_right(self._first_nodes, number) - 1]

    def _mark(self) -> None:
        if threading.get_ident() != self._thread:
            return  # a GPU's backward recomputes in a thread with its own numbering of nodes
        self._first_nodes.append(torch.autograd._get_sequence_nr())
        self._modules.append(self._stack[-1])
