"""Values for the tensors of a replayed operator.

Power depends on data (arXiv 2409.18324), and time may: values are pseudo-random, normal if the
operator allows it, never uninitialised memory, and zeros only if a tuple asks for them. If the
size of a result depends on values, they are chosen to give the recorded size.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec, Value, tensors_in
from opcost.tuples.replay import strides
from opcost.tuples.work import BAGS, GROUPED_PRODUCTS

Draw = Callable[[int, torch.dtype, torch.Generator], torch.Tensor]
"""Makes a number of values of a dtype on the generator's device."""


def draws(operator_tuple: OperatorTuple, outputs: Sequence[TensorSpec]) -> Iterator[Draw]:
    """A `Draw` for each tensor of a tuple, in the order of `OperatorTuple.tensors`.

    `outputs` are the recorded results; without them, their sizes are not reproduced.
    """
    specs = (spec for _, spec in operator_tuple.tensors)
    for spec, draw in zip(specs, _full_draws(operator_tuple, outputs), strict=True):
        yield _with_zeros(spec, draw) if spec.zeros else draw


def _full_draws(operator_tuple: OperatorTuple, outputs: Sequence[TensorSpec]) -> Iterator[Draw]:
    """The same without the zeros that the tuple asks for."""
    arguments = dict(operator_tuple.arguments)
    base = operator_tuple.name.removesuffix("_").removeprefix("_foreach_")
    in_place = operator_tuple.in_place
    for name, value in operator_tuple.arguments:
        for position, spec in enumerate(tensors_in(value)):
            limit = _index_limit(base, name, position, arguments)
            special = _special(base, name, spec, arguments, outputs)
            if special is not None:
                yield special
            elif limit is not None:
                yield _integers(limit)
            elif spec.dtype == "bool" or not spec.dtype.startswith(("float", "bfloat", "complex")):
                yield _integers(2)
            elif name in _POSITIVE or base in _POSITIVE_DOMAIN:
                yield _positive
            elif base.startswith("binary_cross_entropy") and "logits" not in base:
                yield _probability if name in ("self", "target") else _normal
            elif base in _BRANCHING:
                yield _magnitude if spec.zeros else _rectified
            elif base == "grid_sampler" and name == "grid":
                yield _unit_interval
            elif in_place and base in _SHRINKING and name == "self":
                yield _far_from_zero
            elif in_place and base in ("mul", "div") and name == "other":
                yield _signs
            else:
                yield _normal


_POSITIVE = {
    *("running_var", "var", "save_var", "save_invstd", "invstd", "rstd", "logsumexp"),
    *("total_weight", "exp_avg_sqs", "max_exp_avg_sqs", "state_sums", "state_steps"),
    *("denominators", "tensor2"),
}
"""Arguments that are variances, their roots, sums of exponentials, counts, or what is divided
by."""

_POSITIVE_DOMAIN = {"sqrt", "rsqrt", "log", "log2", "log10", "log1p", "pow"}

_BRANCHING = {"max_pool1d", "max_pool2d", "max_pool3d"}
"""On a CPU these branch on values: normal ones take 2.8 times as long as zeros (3.2 and 1.1 ms for
1x512x14x14). They get the output of a ReLU, the usual input of pooling."""

_SHRINKING = {"silu", "hardswish", "mish", "gelu", "elu", "celu"}
"""Repeated in place, these drive small values to zero, but preserve values far from zero."""


def _with_zeros(spec: TensorSpec, draw: Draw) -> Draw:
    """Sets the tensor's share of its elements, at random places, to zero."""

    def partly(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        values = draw(count, dtype, generator)
        places = torch.arange(count, device=values.device).as_strided(spec.shape, strides(spec))
        distinct = places.unique() if isinstance(spec.layout, tuple) else places.flatten()
        order = torch.randperm(len(distinct), device=values.device, generator=generator)
        return values.index_fill(0, distinct[order[: round(spec.zeros * len(distinct))]], 0)

    return partly


def steady(operator_tuple: OperatorTuple) -> OperatorTuple:
    """The tuple with numbers of magnitude 1 where it multiplies its operand by a number in place.

    Thousands of iterations would otherwise drive the operand to infinity, or to subnormal numbers,
    with which processors are slower. No kernel takes less time for another factor.
    """
    name = operator_tuple.name
    if name not in ("mul_", "div_", "_foreach_mul_", "_foreach_div_"):
        return operator_tuple

    def signed(value: Value) -> Value:
        if isinstance(value, tuple):
            return tuple(map(signed, value))
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return type(value)(-1 if value < 0 else 1)

    arguments = ((key, signed(value)) for key, value in operator_tuple.arguments)
    return replace(operator_tuple, arguments=tuple(arguments))


def _index_limit(base: str, name: str, position: int, arguments: dict) -> int | None:
    """The exclusive upper limit of an index argument, or None for other arguments."""
    match base, name:
        case _, "indices" if base == "embedding" or base in BAGS:
            return arguments["weight"].shape[0]
        case _, "indices" if "num_weights" in arguments:  # the gradient of an embedding
            return arguments["num_weights"]
        case _, "target" if "loss" in base:
            sizes = arguments["self"].shape
            return sizes[1] if len(sizes) > 1 else sizes[0]
        case _, "indices" if "pool" in base:  # places within a plane of the input
            return math.prod(arguments["self"].shape[-_PLANE_AXES[base[base.index("pool") + 4]] :])
        case "value_selecting_reduction_backward", "indices":
            return arguments["sizes"][arguments["dim"]]
        case (("index" | "index_put" | "_index_put_impl"), "indices"):
            # The list holds None for a dimension that is not indexed.
            axes = [axis for axis, value in enumerate(arguments["indices"]) if value is not None]
            return arguments["self"].shape[axes[position]]
        case (
            ("gather" | "scatter" | "scatter_add" | "index_select" | "index_add" | "index_fill"),
            "index",
        ):
            return arguments["self"].shape[arguments["dim"]]
        case "take", "index":
            return arguments["self"].elements
    return None


def hold_indices(operator_tuple: OperatorTuple) -> Iterator[bool]:
    """For each tensor of a tuple, in the order of `OperatorTuple.tensors`, whether it selects."""
    arguments = dict(operator_tuple.arguments)
    for name, value in operator_tuple.arguments:
        for position, spec in enumerate(tensors_in(value)):
            limit = _index_limit(operator_tuple.name, name, position, arguments)
            yield limit is not None and spec.dtype != "bool"


_PLANE_AXES = {"1": 1, "2": 2, "3": 3}


def _normal(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    # Drawn in at least float32, because not every device supports float16.
    drawn = dtype if dtype in (torch.float64, torch.complex64, torch.complex128) else torch.float32
    return torch.randn(count, dtype=drawn, device=generator.device, generator=generator).to(dtype)


def _positive(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return _normal(count, dtype, generator).abs() + 0.5


def _rectified(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return _normal(count, dtype, generator).relu()


def _magnitude(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return _normal(count, dtype, generator).abs()


def _unit_interval(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    uniform = torch.rand(count, device=generator.device, generator=generator)
    return (uniform * 2 - 1).to(dtype)


def _probability(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(count, device=generator.device, generator=generator).to(dtype)


def _far_from_zero(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    drawn = _normal(count, dtype, generator)
    return drawn + 20 * drawn.sign()


def _signs(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return _normal(count, dtype, generator).sign()


def _integers(limit: int) -> Draw:
    def draw(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        drawn = torch.randint(limit, (count,), device=generator.device, generator=generator)
        return drawn.to(dtype)

    return draw


_REGIONS = {
    f"torchvision.{name}"
    for pool in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
    for name in (pool, f"_{pool}_backward")
}


def _special(
    base: str, name: str, spec: TensorSpec, arguments: dict, outputs: Sequence[TensorSpec]
) -> Draw | None:
    """A `Draw` for an argument whose values determine sizes, or that holds boxes; else None."""
    if base in _REGIONS and name == "rois":
        return _strided(spec, lambda generator: _regions(spec, arguments, generator))
    if base == "torchvision.nms" and name == "dets":
        kept = outputs[0].shape[0] if outputs else spec.shape[0]
        return _strided(spec, lambda generator: _boxes(spec.shape[0], kept, generator))
    if base == "_unique2" and name == "self" and outputs:
        distinct = max(outputs[0].elements, 1)
        return _strided(spec, lambda generator: _shuffled(spec, generator) % distinct)
    if base in GROUPED_PRODUCTS and name == "offs":
        return _strided(spec, lambda generator: _ends_of_groups(spec, arguments, generator))
    if base in BAGS and name == "offsets":
        return _strided(spec, lambda generator: _offsets(spec, arguments, generator))
    selected = _selected(base, name, spec, arguments, outputs)
    if selected is not None:
        return _strided(spec, lambda generator: _shuffled(spec, generator) < selected)
    return None


def _selected(
    base: str, name: str, spec: TensorSpec, arguments: dict, outputs: Sequence[TensorSpec]
) -> int | None:
    """The number of true elements of a mask, from the recorded results, or None."""
    if base in ("index_put", "_index_put_impl") and spec.dtype == "bool":
        outputs = [arguments["values"]] if arguments["values"].shape else []
    if not outputs:
        return None
    match base, name:
        case ("where", "condition") if "self" not in arguments:
            return outputs[0].shape[0]
        case (("nonzero" | "argwhere"), "self"):
            return outputs[0].shape[0]
        case "masked_select", "mask":
            return outputs[0].elements
        case (("index" | "index_put" | "_index_put_impl"), "indices") if spec.dtype == "bool":
            before = arguments["indices"].index(spec)
            return outputs[0].shape[before]
    return None


def _strided(spec: TensorSpec, values: Callable[[torch.Generator], torch.Tensor]) -> Draw:
    """Arranges values of the tensor's shape by its strides in memory."""

    def draw(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        storage = torch.zeros(count, dtype=dtype, device=generator.device)
        storage.as_strided(spec.shape, strides(spec)).copy_(values(generator))
        return storage

    return draw


def _shuffled(spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    """A random permutation of 0 to the number of elements - 1."""
    order = torch.randperm(spec.elements, device=generator.device, generator=generator)
    return order.reshape(spec.shape)


def _offsets(spec: TensorSpec, arguments: dict, generator: torch.Generator) -> torch.Tensor:
    """Where bags of about equal size begin; the last number may be the end of the last bag."""
    places = torch.arange(spec.elements, device=generator.device)
    bags = spec.elements - bool(arguments.get("include_last_offset"))
    return places * arguments["indices"].elements // max(bags, 1)


def _ends_of_groups(spec: TensorSpec, arguments: dict, generator: torch.Generator) -> torch.Tensor:
    """Where groups of about equal size end, in the dimension that both matrices are split along."""
    first, second = arguments["self"].shape, arguments["mat2"].shape
    shared = first[1] if len(second) == 2 else first[0]
    size = shared if len(first) == 2 else second[1]
    places = torch.arange(1, spec.elements + 1, device=generator.device)
    return places * size // spec.elements


def _boxes(count: int, kept: int, generator: torch.Generator) -> torch.Tensor:
    """`count` boxes (x1, y1, x2, y2): `kept` disjoint ones, and copies of these."""
    options: dict[str, Any] = {"device": generator.device, "generator": generator}
    copies = torch.randint(max(kept, 1), (count - kept,), **options)
    distinct = torch.arange(kept, device=generator.device)
    corner = 2 * torch.cat([distinct, copies])[torch.randperm(count, **options)]
    return torch.stack([corner, corner, corner + 1, corner + 1], dim=1)


def _regions(spec: TensorSpec, arguments: dict, generator: torch.Generator) -> torch.Tensor:
    """Rows of (image, x1, y1, x2, y2) with boxes inside the images."""
    if "input" in arguments:
        images, _, height, width = arguments["input"].shape
    else:
        images, height, width = (arguments[name] for name in ("batch_size", "height", "width"))
    size = torch.tensor([width, height], device=generator.device) / arguments["spatial_scale"]
    options: dict[str, Any] = {"device": generator.device, "generator": generator}
    image = torch.randint(images, (spec.shape[0], 1), **options)
    first = torch.rand((spec.shape[0], 2), **options) / 2
    extent = 0.1 + 0.4 * torch.rand((spec.shape[0], 2), **options)
    return torch.cat([image, first * size, (first + extent) * size], dim=1)
