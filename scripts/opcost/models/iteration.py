"""What an iteration of a model runs: its module, or a step of its training."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from opcost.models.definition import ModelDefinition
from opcost.models.inputs import Arguments
from opcost.models.training import TrainingStep, autocast, training_step


class MixedInference:
    """A module in lower precision, called like the module."""

    def __init__(self, module: nn.Module, dtype: str) -> None:
        self.module, self._dtype = module, dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run forward under autocast."""
        with autocast(self.module, self._dtype):
            return self.module(*args, **kwargs)


Runnable = nn.Module | MixedInference | TrainingStep
"""One call of it is an iteration."""


def runnable(
    module: nn.Module,
    definition: ModelDefinition,
    targets: Arguments,
    search_path: Path | None = None,
) -> Runnable:
    """What an iteration of the definition runs, with a module that was built from it.

    Raises OpcostError for an unsuitable loss or optimizer.
    """
    if definition.training is not None:
        return training_step(module, definition, definition.training, targets, search_path)
    return module if definition.autocast is None else MixedInference(module, definition.autocast)


def module_of(run: Runnable) -> nn.Module:
    """The module that an iteration runs."""
    return run if isinstance(run, nn.Module) else run.module


def held_tensors(run: Runnable) -> list[torch.Tensor]:
    """The tensors that persist from one iteration to the next."""
    if isinstance(run, TrainingStep):
        return [*run.held()]
    module = module_of(run)
    return [*module.parameters(), *module.buffers()]
