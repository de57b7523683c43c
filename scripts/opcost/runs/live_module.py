"""A live module as a model of a run: saved in results/modules beside a config that loads it.

Its classes are saved by name, as by pickle: the file that defines them has to be importable.
"""

import hashlib
import inspect
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

import torch
import yaml
from torch import nn

from opcost.configuration import check_name
from opcost.errors import OpcostError
from opcost.files import content_of, replacing
from opcost.models.configs import input_dtypes
from opcost.models.construction import check_has_values, parameter_dtypes
from opcost.models.definition import usual_dtype
from opcost.results_folder import SAVED_MODULES
from opcost.tuples.extraction import extract_module_tuples
from opcost.tuples.model_tuples import ModelTuples, calls_hash
from opcost.tuples.replay import tensors_in_tree

_FACTORY = f"{__name__}:load_module"
_KEYS = {"shape", "dtype", "low", "high", "tuple"}


def save_model(
    module: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any], name: str, root: Path
) -> tuple[ModelTuples, Path]:
    """Write the module, and a config with arguments of these sizes, for a run in `root`.

    The config contains the active autocast, and changes with the calls of the module and with the
    code of its classes, but not with its weights. Returns the module's tuples, and the path of the
    config from `root`. Raises OpcostError for a module that another process cannot load or run.
    """
    check_name(name)
    tuples = extract_module_tuples(module, inputs, name, kwargs)
    autocast = tuples.definition and tuples.definition.autocast
    tensors = tensors_in_tree((inputs, kwargs))
    if len(set(map(id, tensors))) < len(tensors):  # a config would define two different tensors
        raise OpcostError(
            "two arguments are the same tensor, which a model config cannot express: pass "
            "x.clone(), or wrap the module as in docs/how_to/add_a_model.md to take it once"
        )
    check_has_values(module)
    usual = usual_dtype(parameter_dtypes(module))
    described = _described("inputs", _arguments(module, inputs, kwargs), usual)
    code = _code_hash(module)
    try:
        pickled = io.BytesIO()
        torch.save(module, pickled)
    except Exception as error:
        raise OpcostError(f"the module cannot be saved: {error}. Give a factory instead") from error
    config = {
        "factory": _FACTORY,
        **({"autocast": autocast} if autocast else {}),
        "inputs": described,
    }
    meaning = json.dumps([config, calls_hash(tuples.launched()), code])
    digest = hashlib.sha256(meaning.encode()).hexdigest()[:8]
    directory = SAVED_MODULES / f"{name}-{digest}"
    (root / directory).mkdir(parents=True, exist_ok=True)
    with replacing(root / directory / "module.pt") as temporary:
        torch.save({"sys_path": sys.path, "module": pickled.getvalue()}, temporary)
    config["arguments"] = {"file": str(directory / "module.pt")}
    path = directory / f"{name}.yaml"
    with replacing(root / path) as temporary:
        temporary.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return tuples, path


def load_module(file: str) -> nn.Module:
    """The factory of saved modules."""
    saved = torch.load(file, weights_only=True)
    before = list(sys.path)
    sys.path += [path for path in saved["sys_path"] if path not in before]  # to find its classes
    try:
        content = io.BytesIO(saved["module"])
        # To host memory, regardless of its former device.
        module: nn.Module = torch.load(content, lambda host, _: host, weights_only=False)
    finally:
        sys.path[:] = before
    return module


def _code_hash(module: nn.Module) -> str:
    """A hash of the files that define the module's classes, except PyTorch's own."""
    kinds = {type(part) for part in module.modules()}
    digest = hashlib.sha256()
    for kind in sorted(kinds, key=lambda kind: (kind.__module__, kind.__qualname__)):
        if kind.__module__.startswith("torch."):
            continue
        try:
            file = None if kind.__module__ == "__main__" else Path(inspect.getfile(kind))
        except (TypeError, OSError):
            file = None
        if file is None:
            raise OpcostError(
                f"class {kind.__name__} is defined in this notebook or script, where another "
                "process cannot find it: put it into a file and import it"
            )
        digest.update(content_of(file))
    return digest.hexdigest()[:16]


def _arguments(module: nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A list of positional arguments or, if there are keyword arguments, all by name."""
    if not kwargs:
        return list(inputs)
    bound = inspect.signature(module.forward).bind(*inputs, **kwargs)
    nameless = {
        parameter.name
        for parameter in bound.signature.parameters.values()
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY)
    }
    nameless &= bound.arguments.keys()
    if nameless:
        raise OpcostError(
            f"forward takes {min(nameless)} by position only, and kwargs are given as well: a "
            "model config passes all arguments by position or all by name. Wrap the module as in "
            "docs/how_to/add_a_model.md"
        )
    return dict(zip(bound.signature.parameters, bound.args, strict=False)) | bound.kwargs


def _described(name: str, value: Any, usual: str) -> Any:
    """A value as a config writes it, without dtypes of tensors that have the usual one."""
    if isinstance(value, torch.Tensor):
        return _tensor(name, value, usual)
    if type(value) in (bool, int, float, str, NoneType):
        return value
    if isinstance(value, list):
        return [_described(f"{name}[{number}]", each, usual) for number, each in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": _described(name, list(value), usual)}
    if isinstance(value, Mapping) and all(
        isinstance(key, str) and key not in _KEYS for key in value
    ):
        return {key: _described(f"{name}[{key!r}]", each, usual) for key, each in value.items()}
    raise OpcostError(
        f"{name} is a {type(value).__name__}: opcost.run measures modules that take tensors, "
        "Python's numbers and strings, None, and lists, tuples and dicts of these, whose keys "
        f"are strings other than {', '.join(sorted(_KEYS))}. Wrap yours as in "
        "docs/how_to/add_a_model.md"
    )


def _tensor(name: str, tensor: torch.Tensor, usual: str) -> dict[str, Any]:
    if tensor.is_meta or not tensor.numel():
        kind = "on the meta device" if tensor.is_meta else f"empty ({list(tensor.shape)})"
        raise OpcostError(f"{name} is {kind}: give a tensor with values")
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in (allowed := input_dtypes()):
        raise OpcostError(f"{name} has dtype {dtype}: give {', '.join(allowed)}")
    found: dict[str, Any] = {"shape": list(tensor.shape)}
    if dtype != usual:
        found["dtype"] = dtype
    if tensor.is_floating_point() or tensor.is_complex():
        return found
    least, most = int(tensor.min()), int(tensor.max())
    # A mask of only ones, or only zeros, must not become a mixed one.
    if least == most or least < 0:
        found["low"] = least
    drawn = tensor.dtype == torch.bool and least < most
    return found if drawn else found | {"high": most + 1}
