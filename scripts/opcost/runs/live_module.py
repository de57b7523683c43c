"""A live module as a model of a run: saved beside a model config, whose factory loads it.

Its classes are saved by name, as pickle does: the file that defines them has to be importable.
"""

import hashlib
import inspect
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from opcost.configuration import check_name
from opcost.errors import OpcostError
from opcost.files import replacing
from opcost.tuples.extraction import extract_module_tuples
from opcost.tuples.model_tuples import ModelTuples, calls_hash

_FACTORY = f"{__name__}:load_module"
_HEAD = "# Written by opcost.run, which saved the module; it writes both files anew.\n"


def save_model(
    module: nn.Module, inputs: Sequence[torch.Tensor], name: str, root: Path, directory: Path
) -> ModelTuples:
    """Write `name`.pt and `name`.yaml, the config of the module with inputs of these sizes.

    They are in `directory`, relative to the folder `root` of the run. The config changes with the
    calls of the module and with the code of its classes, not with its weights. Returns its tuples.
    Raises OpcostError for a module that another process cannot load or run, and for a name that a
    config of the user has.
    """
    check_name(name)
    _check_ours(root / directory / f"{name}.yaml")
    tuples = extract_module_tuples(module, inputs, name)
    for number, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            raise OpcostError(
                f"inputs[{number}] is a {type(value).__name__}; opcost.run measures modules that "
                "take tensors by position: wrap yours as in docs/how_to/add_a_model.md"
            )
    described = [_input(f"inputs[{number}]", value) for number, value in enumerate(inputs)]
    code = _code_hash(module)
    try:
        pickled = io.BytesIO()
        torch.save(module, pickled)
    except Exception as error:
        raise OpcostError(f"the module cannot be saved: {error}. Give a factory instead") from error
    (root / directory).mkdir(parents=True, exist_ok=True)
    with replacing(root / directory / f"{name}.pt") as temporary:
        torch.save({"sys_path": sys.path, "module": pickled.getvalue()}, temporary)
    config = {
        "factory": _FACTORY,
        "arguments": {
            "file": str(directory / f"{name}.pt"),
            "version": f"{calls_hash(tuples.launched())}_{code}",
        },
        "dtype": _dtype(module, inputs),
        "inputs": described,
    }
    text = yaml.safe_dump(config, sort_keys=False, default_flow_style=None)
    with replacing(root / directory / f"{name}.yaml") as temporary:
        temporary.write_text(_HEAD + text, encoding="utf-8")
    return tuples


def load_module(file: str, version: str) -> nn.Module:
    """The factory of saved modules. `version` tells definitions apart, and is not used."""
    saved = torch.load(file, weights_only=True)
    before = list(sys.path)
    sys.path += [path for path in saved["sys_path"] if path not in before]  # to find its classes
    try:
        content = io.BytesIO(saved["module"])
        # In host memory, wherever it was.
        module: nn.Module = torch.load(content, lambda host, _: host, weights_only=False)
    finally:
        sys.path[:] = before
    return module


def _code_hash(module: nn.Module) -> str:
    """Of the files that define the module's classes, but PyTorch's own."""
    kinds = {type(part) for part in module.modules()}
    digest = hashlib.sha256()
    for kind in sorted(kinds, key=lambda kind: (kind.__module__, kind.__qualname__)):
        if kind.__module__.startswith("torch."):
            continue
        if kind.__module__ == "__main__":
            raise OpcostError(
                f"class {kind.__name__} is defined in this notebook or script, where another "
                "process cannot find it: put it into a file and import it"
            )
        digest.update(Path(inspect.getfile(kind)).read_bytes())
    return digest.hexdigest()[:16]


def _dtype(module: nn.Module, inputs: Sequence[torch.Tensor]) -> str:
    found = {each.dtype for each in [*module.parameters(), *inputs] if each.is_floating_point()}
    if len(found) > 1:
        names = ", ".join(sorted(map(str, found)))
        raise OpcostError(f"the module and its inputs have several dtypes ({names}): use one")
    return str(next(iter(found), torch.float32)).removeprefix("torch.")


def _check_ours(path: Path) -> None:
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(_HEAD):
        raise OpcostError(
            f"{path} was not written by opcost.run, and is not overwritten: give another `name`"
        )


def _input(name: str, tensor: torch.Tensor) -> dict[str, Any]:
    if tensor.is_meta or not tensor.numel():
        kind = "on the meta device" if tensor.is_meta else f"empty ({list(tensor.shape)})"
        raise OpcostError(f"{name} is {kind}: give a tensor with values")
    if tensor.is_floating_point():
        return {"shape": list(tensor.shape)}
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.dtype != torch.bool and int(tensor.min()) < 0:
        raise OpcostError(f"{name} has negative integers: opcost draws integers from 0 on")
    high = {} if tensor.dtype == torch.bool else {"high": int(tensor.max()) + 1}
    return {"shape": list(tensor.shape), "dtype": kind, **high}
