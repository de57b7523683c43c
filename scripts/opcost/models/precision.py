"""Lower precision: the context of torch.autocast."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn


def autocast(module: nn.Module, dtype: str | None) -> AbstractContextManager[None]:
    """The context in which a module's forward runs in lower precision; none without a dtype."""
    if dtype is None:
        return nullcontext()
    devices = (parameter.device for parameter in module.parameters())
    device = next(devices, torch.get_default_device()).type
    context: AbstractContextManager[None] = torch.autocast(device, getattr(torch, dtype))
    return context
