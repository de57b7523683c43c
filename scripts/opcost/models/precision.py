"""Lower precision: the context of torch.autocast."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn


def autocast(module: nn.Module, dtype: str | None) -> AbstractContextManager[None]:
    """The context in which a module's forward runs in lower precision; none without a dtype."""
    if dtype is None:
        return nullcontext()
    context: AbstractContextManager[None] = torch.autocast(
        _device_type(module), getattr(torch, dtype)
    )
    return context


def active_autocast(module: nn.Module) -> str | None:
    """The dtype of a torch.autocast around the caller that affects a module's forward."""
    device = _device_type(module)
    if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return None
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.")


def _device_type(module: nn.Module) -> str:
    devices = (parameter.device for parameter in module.parameters())
    return next(devices, torch.get_default_device()).type
