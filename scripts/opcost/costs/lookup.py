"""The arguments of `opcost.explain`: models, inputs and databases in Python."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opcost.costs.explanation import explain
from opcost.costs.model_argument import find_model, parse_input
from opcost.costs.model_cost import ModelCost
from opcost.databases.database import default_databases
from opcost.devices.kinds import KINDS
from opcost.errors import OpcostError, need
from opcost.models.variants import Options
from opcost.tuples.model_tuples import ModelTuples
from opcost.tuples.shipped_calls import shipped_calls


def look_up(
    model: Any,
    inputs: Any,
    kwargs: Mapping[str, Any],
    database: Any,
    target: str | None,
    batch_size: int | None,
    dtype: str | None,
    predict: bool = True,
) -> ModelCost:
    """As `opcost.explain` describes."""
    given = batch_size is not None
    if given and (type(batch_size) is not int or batch_size < 1):
        raise OpcostError(f"batch_size is {batch_size!r}; allowed: an integer from 1")
    databases = _paths(database)
    if not databases:
        raise OpcostError("no database is given: name one, or leave it out for the default")
    tuples = _tuples(model, inputs, kwargs, batch_size, dtype)
    found = explain(tuples, databases, [] if target is None else [target], predict)
    if not found:
        names = ", ".join(map(str, databases))
        raise OpcostError(f"there is no measured operator in {names}: run opcost run MODEL")
    chosen = max(found, key=lambda each: len(each.estimate.measured))
    alike = [
        each.conditions_id
        for each in found
        if (each.database, each.target) == (chosen.database, chosen.target)
        and len(each.estimate.measured) == len(chosen.estimate.measured)
    ]
    if len(alike) > 1:
        raise OpcostError(
            f"{chosen.database} has target {chosen.target!r} under several conditions: name one by "
            f"its conditions_id, as target={alike[0]!r}; there are {', '.join(map(str, alike))}"
        )
    name = os.fspath(model) if isinstance(model, str | os.PathLike) else None
    return ModelCost(tuples, found, chosen, name)


def _tuples(
    model: Any, inputs: Any, kwargs: Mapping[str, Any], batch_size: int | None, dtype: str | None
) -> ModelTuples:
    if isinstance(model, ModelTuples):
        return model
    if isinstance(model, str | os.PathLike):
        return _of_name(os.fspath(model), sizes_of(inputs), kwargs, batch_size, dtype)
    need("torch")
    from torch import Tensor, nn  # a second; not needed for a name

    if not isinstance(model, nn.Module):
        raise OpcostError(
            f"model is a {type(model).__name__}; allowed: an instance of nn.Module, a name or path "
            "(str), or ModelTuples"
        )
    if (batch_size, dtype) != (None, None):
        raise OpcostError(
            "a module and its tensors have a batch size and a dtype: give neither beside them"
        )
    from opcost.tuples.extraction import extract_module_tuples

    arguments = [inputs] if isinstance(inputs, Tensor) else inputs
    return extract_module_tuples(model, arguments, type(model).__name__, kwargs)


def _of_name(
    name: str,
    sizes: Sequence[str],
    kwargs: Mapping[str, Any],
    batch_size: int | None,
    dtype: str | None,
) -> ModelTuples:
    """Shipped, or extracted in this process, which has loaded torch and must not fork."""
    refuse_autocast(name)
    batches = () if batch_size is None else (batch_size,)
    options = Options(batches, tuple(map(parse_input, sizes)), (dtype,), arguments=kwargs)
    definition, search_path = find_model(name, options)
    if (shipped := shipped_calls(definition)) is not None:
        return shipped
    need("torch")
    from opcost.tuples.extraction import extract_model_tuples  # a second

    tuples = extract_model_tuples(definition, search_path)
    if tuples.refusal is not None:
        raise OpcostError(f"{name}: {tuples.refusal}")
    return tuples


def refuse_autocast(name: str) -> None:
    """Raise OpcostError inside torch.autocast for a model given by name: its config states its
    precision, and the context would change its calls, but not its label.
    """
    if (torch := sys.modules.get("torch")) is None:
        return  # nothing is active
    for device in KINDS:
        if torch.is_autocast_enabled(device):
            raise OpcostError(
                f"torch.autocast is active for {device}, and {name} is given by name: leave the "
                "context, and write `autocast: bfloat16` into a model config "
                "(docs/how_to/train.md), or give a module"
            )


def sizes_of(inputs: Any) -> list[str]:
    """The inputs of a model given by name. Raises OpcostError unless all are strings."""
    sizes = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    for size in sizes:
        if not isinstance(size, str):
            raise OpcostError(
                f"the model is given by name, and an input is a {type(size).__name__}: give its "
                'sizes as a string, such as "8x3x224x224"'
            )
    return sizes


def _paths(database: Any) -> list[Path]:
    if database is None:
        return default_databases()
    several = not isinstance(database, str | os.PathLike) and isinstance(database, Iterable)
    return [Path(each) for each in (database if several else [database])]
