"""What the code of a model does to its own measurement, and whether the row can say it."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from opcost.devices.device import Device, OutOfMemory
from opcost.errors import OpcostError
from opcost.memory import free_bytes, gib
from opcost.models.construction import input_bytes
from opcost.models.definition import ModelDefinition
from opcost.models.process_state import ProcessState
from opcost.models.user_code import check_threads
from opcost.rows.flags import CALLS_VARY, STATE_CHANGED
from opcost.tuples.operator_tuple import OperatorTuple
from opcost.tuples.recorder import CallLog

_COPIES_OF_INPUTS = 2
"""Inputs are drawn, and then copied to where they are measured."""

_MOST_RUNS = 7
_MOST_S = 0.25


def check_inputs_fit(definition: ModelDefinition, device: Device) -> None:
    """Raise OutOfMemory before inputs are drawn that do not fit into memory."""
    needed = _COPIES_OF_INPUTS * input_bytes(definition)
    free = min(free_bytes(), device.free_memory_bytes())
    if needed > free:
        raise OutOfMemory(f"the inputs need {gib(needed)}; {gib(free)} are free")


class Supervision:
    """Of one model, from before it is built until it was measured."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._state = ProcessState()
        self._threads = set(threading.enumerate())
        self._changed: list[str] = []
        self._calls: list[OperatorTuple] = []

    def settle(self) -> None:
        """Set PyTorch's settings back to the target's, after code of the model has run.

        Raises OpcostError for what cannot be set back, such as a thread that computes.
        """
        check_threads(self._threads, self._model)
        for change in self._state.restore(self._model):
            self._changed.append(change)
            print(f"opcost: model {self._model}: its code {change}: set back", file=sys.stderr)

    def before_timing(self, run: Callable[[], Any]) -> None:
        """Run the model for the first time. Raises as `settle`."""
        _, self._calls = _logged(run)
        self.settle()

    def after_timing(self, run: Callable[[], Any]) -> tuple[Any, list[str]]:
        """The model's output, and the flags of its row.

        Raises OpcostError where the model has changed settings again: it was then measured under
        others than the row says.
        """
        if changed := self._state.restore(self._model):
            raise OpcostError(
                f"model {self._model}: its code {changed[0]} while it was measured: the row would "
                "not be about the target's settings. Leave them as they are in forward"
            )
        flags = [STATE_CHANGED] if self._changed else []
        deadline = time.monotonic() + _MOST_S
        for _ in range(_MOST_RUNS):
            output, calls = _logged(run)
            if calls != self._calls:
                return output, [*flags, CALLS_VARY]
            if time.monotonic() > deadline:
                break
        return output, flags


def _logged(run: Callable[[], Any]) -> tuple[Any, list[OperatorTuple]]:
    with CallLog() as log:
        output = run()
    return output, log.operator_tuples
