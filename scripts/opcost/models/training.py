"""Training: a module with its loss and optimizer, called like a module.

A measured step is in the middle of a long training: the counters of optimizers are so high that the
corrections of first steps have faded, and all steps call the same operators with the same numbers.
The learning rate is zero to keep the weights unchanged; this makes no operator faster.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from opcost.errors import OpcostError, closest
from opcost.models.conditions import autocast
from opcost.models.definition import BACKWARD, FORWARD, LOSS, OPTIMIZER, Training
from opcost.models.inputs import Arguments
from opcost.models.source import import_callable
from opcost.models.user_code import reason, user_code

_STEPS_BEFORE = 1_000_000

_STEPS_DIFFER = "the numbers in its calls change from step to step"
_UNSUITABLE = {
    "ASGD": _STEPS_DIFFER,
    "Adafactor": _STEPS_DIFFER,
    "Rprop": "its steps do not depend on the learning rate, so that the weights would move away",
    "LBFGS": "its step runs the model as often as it needs",
    "SparseAdam": "it takes sparse gradients",
}


class TrainingStep:
    """Runs a training step when called with the arguments of forward; returns the loss.

    `phase` is the running one; `entered` is called with each phase that begins.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Callable[[Any], torch.Tensor],
        optimizer: torch.optim.Optimizer | None,
        autocast: str | None = None,
    ) -> None:
        self.module, self.optimizer = module, optimizer
        self._loss, self._autocast = loss, autocast
        self.phase = FORWARD
        self.entered: Callable[[str], None] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run forward, loss, backward and optimizer."""
        loss = self.backward(*args, **kwargs)
        self._enter(OPTIMIZER)
        if self.optimizer is not None:
            self.optimizer.step()
        self._clear_gradients()
        return loss

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run forward and the loss."""
        self._enter(FORWARD)
        with autocast(self.module, self._autocast):
            output = self.module(*args, **kwargs)
            self._enter(LOSS)
            return self._loss(output)

    def backward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run forward, the loss and backward."""
        loss = self.forward(*args, **kwargs)
        self._enter(BACKWARD)
        loss.backward()
        return loss.detach()

    def without_backward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run forward and the loss, and free its graph."""
        return self.forward(*args, **kwargs).detach()

    def without_optimizer(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run everything except the optimizer."""
        loss = self.backward(*args, **kwargs)
        self._clear_gradients()
        return loss

    def prepare(self, inputs: Arguments) -> None:
        """Run a step, in which the optimizer creates its state, and advance its counters."""
        self(*inputs.args, **inputs.kwargs)
        for state in self.optimizer.state.values() if self.optimizer else ():
            if torch.is_tensor(state.get("step")):
                # A new tensor, because fake tensors know the value of a new constant.
                state["step"] = torch.tensor(
                    float(_STEPS_BEFORE), dtype=state["step"].dtype, device=state["step"].device
                )
            elif "step" in state:
                state["step"] = _STEPS_BEFORE

    def held(self) -> Iterator[torch.Tensor]:
        """The tensors that persist between steps."""
        yield from self.module.parameters()
        yield from self.module.buffers()
        if self.optimizer is not None:
            yield from _tensors([*self.optimizer.state.values()])

    def _enter(self, phase: str) -> None:
        self.phase = phase
        if self.entered is not None:
            self.entered(phase)

    def _clear_gradients(self) -> None:
        for parameter in self.module.parameters():
            parameter.grad = None


def training_step(
    module: nn.Module,
    training: Training,
    targets: Arguments,
    autocast: str | None = None,
    search_path: Path | None = None,
) -> TrainingStep:
    """A training step of a module; `autocast` is its dtype.

    Raises OpcostError for an unsuitable loss or optimizer.
    """
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise OpcostError(
            "none of its parameters requires a gradient, so there is nothing to train. Leave "
            "out mode: training, or requires_grad_(False) in the factory"
        )
    return TrainingStep(
        module,
        _loss(training, targets, search_path),
        _optimizer(module, training),
        autocast,
    )


def _loss(
    training: Training, targets: Arguments, search_path: Path | None
) -> Callable[[Any], torch.Tensor]:
    if training.loss is None:
        return _as_returned
    if ":" in training.loss:
        function = import_callable(training.loss, "loss", search_path)
        options = dict(training.loss_arguments)
        return lambda output: _scalar(function(output, *targets.args, **targets.kwargs, **options))
    offered = {
        name: each
        for name, each in vars(functional).items()
        if name[0] != "_" and {"target", "targets"} & _parameters(each).keys()
    }
    if training.loss not in offered:
        raise OpcostError(
            f"torch.nn.functional has no loss {training.loss!r} of an output and targets."
            f" {closest(training.loss, offered)} Or name a function of yours, "
            "FILE.py:function"
        )
    function = offered[training.loss]

    def of_each(output: Any) -> torch.Tensor:
        # Classifiers with auxiliary heads return several outputs.
        outputs = _tensors(output)
        if not outputs:
            raise OpcostError(
                f"forward returned a {type(output).__name__} without tensors, of which "
                f"{training.loss} is no loss: name a function of yours, FILE.py:function"
            )
        losses = [
            function(each, *targets.args, **targets.kwargs, **training.loss_arguments)
            for each in outputs
        ]
        return _scalar(sum(losses) if len(losses) > 1 else losses[0])

    return of_each


def _as_returned(output: Any) -> torch.Tensor:
    """The loss that forward returned: as a tensor, `loss` of the output, or a mapping of losses."""
    if isinstance(output, torch.Tensor):
        return _scalar(output)
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, Mapping):
        parts = [*output.values()]
        numbers = all(isinstance(each, torch.Tensor) and each.numel() == 1 for each in parts)
        loss = output.get("loss", sum(parts) if parts and numbers else output)
    return _scalar(output if loss is None else loss)


def _scalar(loss: Any) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        what = (
            f"shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        )
        raise OpcostError(
            f"the loss is of {what}; backward needs one number. Name a `loss`, such as "
            "cross_entropy with its `targets`, or leave it out if forward returns the loss (alone, "
            "as output.loss, or as a dict of losses)"
        )
    if not loss.requires_grad:
        raise OpcostError("the loss does not depend on any parameter that requires a gradient")
    return loss


def _optimizer(module: nn.Module, training: Training) -> torch.optim.Optimizer | None:
    if training.optimizer is None:
        return None
    offered = {
        name: kind
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
        if kind is not torch.optim.Optimizer
    }
    name = training.optimizer
    if name in _UNSUITABLE:
        raise OpcostError(f"optimizer {name} is not supported: {_UNSUITABLE[name]}")
    if name not in offered:
        raise OpcostError(
            f"torch.optim has no optimizer {name!r}. "
            f"{closest(name, offered.keys() - _UNSUITABLE.keys())}"
        )
    trained = [each for each in module.parameters() if each.requires_grad]
    try:
        with user_code():
            optimizer = offered[name](trained, **training.optimizer_arguments)
    except Exception as error:
        raise OpcostError(
            f"optimizer {name} cannot be made with arguments "
            f"{dict(training.optimizer_arguments)}: {reason(error)}"
        ) from error
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    return optimizer


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _parameters(function: Any) -> Mapping[str, Any]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
