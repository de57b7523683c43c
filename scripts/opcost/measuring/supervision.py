"""Detect how a model's code affects its own measurement."""

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from opcost.devices.device import Device, OutOfMemory
from opcost.errors import OpcostError
from opcost.memory import free_bytes, gib
from opcost.models.conditions import ProcessState
from opcost.models.definition import ModelDefinition, input_bytes
from opcost.models.user_code import check_threads
from opcost.rows.flags import CALLS_VARY, STATE_CHANGED
from opcost.tuples.operator_tuple import OperatorTuple
from opcost.tuples.recorder import CallLog

_COPIES_OF_INPUTS = 2
"""Inputs are generated, and then copied to the memory of the workload."""

_MAX_RUNS = 7
_MAX_S = 0.25


def check_inputs_fit(definition: ModelDefinition, device: Device) -> None:
    """Raise OutOfMemory if inputs will not fit into memory."""
    needed = _COPIES_OF_INPUTS * input_bytes(definition)
    free = min(free_bytes(), device.free_memory_bytes())
    if needed > free:
        raise OutOfMemory(f"the inputs need {gib(needed)}; {gib(free)} are free")


class Supervision:
    """Supervises one model, from before its construction until after its measurement."""

    def __init__(self, model: str, device: torch.device) -> None:
        self._model, self._device = model, device
        self._state = ProcessState()
        self._threads = set(threading.enumerate())
        self._changed: list[str] = []
        self._calls = CallLog(device)

    def settle(self) -> None:
        """Restore PyTorch's settings after the model's code has run.

        Raises OpcostError for effects that cannot be undone, such as a computing thread.
        """
        check_threads(set(threading.enumerate()) - self._threads, self._model)
        for change in self._state.restore(self._model):
            self._changed.append(change)
            print(f"opcost: model {self._model}: its code {change}: restored", file=sys.stderr)

    def before_timing(self, run: Callable[[], Any]) -> Mapping[OperatorTuple, int]:
        """Run the model once, and return how many calls of each tuple launch kernels.

        Raises as `settle` does.
        """
        _, self._calls = self._logged(run)
        self.settle()
        return self._calls.kernels

    @property
    def calls(self) -> Sequence[OperatorTuple]:
        """All calls of the run before timing, in order."""
        return self._calls.operator_tuples

    @property
    def compiled(self) -> bool:
        """Whether some calls of that run are of parts that torch.compile compiles."""
        return self._calls.compiled

    def after_timing(self, run: Callable[[], Any]) -> tuple[Any, list[str]]:
        """The model's output, and the flags of its row.

        Raises OpcostError if the model changed settings during the measurement.
        """
        if changed := self._state.restore(self._model):
            raise OpcostError(
                f"model {self._model}: its code {changed[0]} during the measurement, which is "
                "therefore not one under the target's settings. Do not change settings in forward"
            )
        flags = [STATE_CHANGED] if self._changed else []
        deadline = time.monotonic() + _MAX_S
        for _ in range(_MAX_RUNS):
            output, calls = self._logged(run)
            if calls.operator_tuples != self._calls.operator_tuples:
                return output, [*flags, CALLS_VARY]
            if time.monotonic() > deadline:
                break
        return output, flags

    def _logged(self, run: Callable[[], Any]) -> tuple[Any, CallLog]:
        with CallLog(self._device) as log:
            output = run()
        return output, log
