"""The power limit at which a model trains, or infers, with the least energy x time squared."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.errors import OpcostError
from opcost.files import replacing
from opcost.power.limits import LimitSweep, Step, name_of, power_limits, sweep_limits

if TYPE_CHECKING:
    import torch

_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
"""The limits of SustainableML's profiler, of the default limit."""


def power_cap_profiler(
    model: "torch.nn.Module",
    dataloader: Iterable[Any],
    gpu_num: int = 0,
    train: bool = False,
    loss_fn: Any = None,
    optimizer: "torch.optim.Optimizer | None" = None,
    out_file: str | os.PathLike[str] | None = None,
    *,
    seconds: float = 30.0,
) -> LimitSweep:
    """Measure a model at eight power limits of a GPU, from 30 % of the default to the default as
    far as it allows them, and at the present one; called as SustainableML's profiler.

    A step is a batch of the loader, a pair of data and labels: loading, the copy to the GPU,
    inference without gradients or, with `train`, a step of training, **which changes the model**.
    Each limit takes about 1.3 x `seconds`. `out_file` gets the table as CSV. Returns the sweep:
    `best.limit_w`, what it has `saved`, and a table as text. Arguments and errors are otherwise
    those of `sweep_limits`.
    """
    if train and (loss_fn is None or optimizer is None):
        raise OpcostError("train=True needs loss_fn and optimizer: give both")
    known = power_limits()[name_of(gpu_num)]
    if isinstance(known, str):
        raise OpcostError(known)
    shares_w = {round(share * known.default_w) for share in _SHARES}
    allowed_w = [each for each in shares_w if known.least_w <= each <= known.most_w]
    device = _device(gpu_num)
    step = _step(model.to(device), device, dataloader, loss_fn, optimizer if train else None)
    found = sweep_limits(step, {*allowed_w, known.present_w}, seconds=seconds, gpu=gpu_num)
    if out_file is not None:
        with replacing(Path(out_file)) as temporary:
            found.to_pandas().to_csv(temporary, index=False)
    return found


def _device(gpu_num: int) -> "torch.device":
    import torch

    if not torch.cuda.is_available():
        raise OpcostError("PyTorch sees no GPU: see `python -m torch.utils.collect_env`")
    return torch.device(name_of(gpu_num))


def _step(
    model: "torch.nn.Module",
    device: "torch.device",
    dataloader: Iterable[Any],
    loss_fn: Any,
    optimizer: "torch.optim.Optimizer | None",
) -> Step:
    """A step with the next batch; of training if there is an optimizer."""
    import torch

    model.train(optimizer is not None)
    batches = _endlessly(dataloader)

    def step() -> None:
        data, labels = next(batches)
        with torch.set_grad_enabled(optimizer is not None):
            outputs = model(data.to(device))
        if optimizer is not None:
            optimizer.zero_grad()
            loss_fn(outputs, labels.to(device)).backward()
            optimizer.step()

    return step


def _endlessly(dataloader: Iterable[Any]) -> Iterator[Any]:
    """The batches again and again. Raises OpcostError for none, or one that is no pair."""
    while True:
        batch = None
        for batch in dataloader:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise OpcostError(
                    f"a batch of the data loader is a {type(batch).__name__}, not a pair of data "
                    "and labels: use power.sweep_limits with a step of yours"
                )
            yield batch
        if batch is None:
            raise OpcostError("the data loader has no batch: give one that can be repeated")
