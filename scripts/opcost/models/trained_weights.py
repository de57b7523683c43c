"""Trained weights of a model: a file of the user, or weights of torchvision that its cache has.

Nothing is downloaded, and no code in a file is executed.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from opcost.errors import OpcostError
from opcost.files import opened
from opcost.memory import free_bytes, gib
from opcost.models.definition import ModelDefinition
from opcost.models.source import check_unchanged, find_weights
from opcost.text import some

State = dict[str, torch.Tensor]

_NAMED = 2
_OF_MODEL = "save those of the model: torch.save(model.state_dict(), FILE)"


def load_weights(module: nn.Module, definition: ModelDefinition, search_path: Path | None) -> None:
    """Load the file that a definition names into a module built from it.

    Raises OpcostError for a file that does not hold this model's weights, and ChangedSource for one
    that has changed.
    """
    file = find_weights(definition.weights, search_path)
    if file is None:
        return
    state = read_state(file)
    check_unchanged(definition, search_path)
    own = module.state_dict(keep_vars=True)
    try:
        missing, unexpected = module.load_state_dict(state, strict=False)
    except RuntimeError as error:  # names agree, sizes do not
        _, *others = str(error).splitlines()
        raise _of_another_model(file, [each.strip().rstrip(".") for each in others]) from error
    present = {id(own[name]) for name in own.keys() & state.keys()}  # weights may be shared
    missing = [name for name in missing if id(own[name]) not in present]
    listed = [
        f"{len(names)} of {total} names {what} ({some(names, _NAMED)})"
        for names, total, what in (
            (missing, len(own), "of the model are missing"),
            (unexpected, len(state), "in the file are unexpected"),
        )
        if names
    ]
    if listed:
        raise _of_another_model(file, listed)


def _of_another_model(file: Path, differences: list[str]) -> OpcostError:
    return OpcostError(
        f"the weights in {file} are of another model: {some(differences, _NAMED)}. Name the file "
        "of this model, or give the model the `arguments` with which it was trained"
    )


def read_state(file: Path) -> State:
    """The tensors in a file, by name. Raises OpcostError."""
    size, free = file.stat().st_size, free_bytes()
    if size > free:
        raise OpcostError(
            f"the weights in {file} need {gib(size)}; {gib(free)} of memory are free: leave "
            "`weights` out, or use a machine with more memory"
        )
    try:
        if file.suffix == ".safetensors":
            state = _safetensors(file)
        else:
            state = torch.load(file, map_location=lambda memory, _: memory, weights_only=True)
    except (OpcostError, MemoryError):
        raise
    except Exception as error:
        raise OpcostError(
            f"{file} cannot be read as weights: it is incomplete, of another format, or holds "
            "other Python objects than tensors, which are refused because they could execute code: "
            f"{_OF_MODEL}"
        ) from error
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(each, torch.Tensor) for name, each in state.items()
    ):
        found = f"has {some(list(map(str, state)), _NAMED)}" if isinstance(state, dict) else "is"
        raise OpcostError(
            f"{file} holds a {type(state).__name__} that {found}, not tensors by name: {_OF_MODEL}"
        )
    return state


def _safetensors(file: Path) -> State:
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise OpcostError(
            f"{file} needs the package safetensors: python -m pip install safetensors"
        ) from error
    return load_file(file)


def cached_state(weights: Any) -> State:
    """The tensors of an entry of torchvision's WeightsEnum, from the cache of torch.hub.

    Raises OpcostError, with the command that downloads them, if they are not there.
    """
    file = Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name
    if not file.is_file():
        raise OpcostError(
            f"{weights} are not in {file.parent}, and opcost downloads nothing: python -c "
            f"\"import torchvision; torchvision.models.get_weight('{weights}')"
            '.get_state_dict(check_hash=True)"'
        )
    with opened(file) as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if not digest.startswith(file.stem.rpartition("-")[2]):
        raise OpcostError(f"{file} is incomplete or another file: delete it, and download it again")
    return read_state(file)
