"""What an iteration of a model runs: its module, a step of its training, or one of generation."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from opcost.errors import OpcostError
from opcost.models.decoding import GenerationStep
from opcost.models.definition import ModelDefinition
from opcost.models.inputs import Arguments
from opcost.models.precision import autocast
from opcost.models.training import TrainingStep, training_step


class MixedInference:
    """A module in lower precision, called like the module."""

    def __init__(self, module: nn.Module, dtype: str) -> None:
        self.module, self._dtype = module, dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run forward under autocast."""
        with autocast(self.module, self._dtype):
            return self.module(*args, **kwargs)


Runnable = nn.Module | MixedInference | TrainingStep | GenerationStep
"""One call of it is an iteration."""


def runnable(
    module: nn.Module,
    definition: ModelDefinition,
    further: Arguments,
    search_path: Path | None = None,
) -> Runnable:
    """What an iteration of the definition runs, with a module that was built from it.

    `further` are its further inputs (construction.py). Raises OpcostError for an unsuitable loss,
    optimizer or model.
    """
    if definition.training is not None:
        return training_step(module, definition, definition.training, further, search_path)
    if definition.cached_tokens is not None:
        try:
            cached = further if definition.cached_tokens else None
            return GenerationStep(module, cached, definition.autocast)
        except OpcostError as error:
            raise OpcostError(f"model {definition.name}: {error}") from error
    return module if definition.autocast is None else MixedInference(module, definition.autocast)


def prepare(run: Runnable, inputs: Arguments) -> None:
    """Make what persists from one iteration to the next: optimizer state, cached keys and values.

    Raises OpcostError.
    """
    if isinstance(run, TrainingStep | GenerationStep):
        run.prepare(inputs)


def module_of(run: Runnable) -> nn.Module:
    """The module that an iteration runs."""
    return run if isinstance(run, nn.Module) else run.module


def held_tensors(run: Runnable) -> list[torch.Tensor]:
    """The tensors that persist from one iteration to the next."""
    if isinstance(run, TrainingStep):
        return [*run.held()]
    module = module_of(run)
    cached = run.cached_tensors() if isinstance(run, GenerationStep) else ()
    return [*module.parameters(), *module.buffers(), *cached]
