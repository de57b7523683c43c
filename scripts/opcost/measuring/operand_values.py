"""Values for the tensors of a replayed operator.

Power depends on data (arXiv 2409.18324), and time may: values are those of a model's call, if they
are given, or else pseudo-random, normal if the operator allows it, never uninitialised memory, and
zeros only if a tuple requests them. If the size of a result depends on values, they are chosen to
give the recorded size. Integers that select, count or bound something fit it, or the operator is
refused.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import torch

from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec, Value, tensors_in
from opcost.tuples.replay import UnsupportedOperator, strides
from opcost.tuples.work import GROUPED_PRODUCTS

Draw = Callable[[int, torch.dtype, torch.Generator], torch.Tensor]
"""Generates a number of values of a dtype on the generator's device."""


VALUES_REMEDY = (
    "Measure its model end to end, or define the values in measuring/operand_values.py, as in "
    "docs/how_to/operators.md"
)


@dataclass(frozen=True)
class _Argument:
    """A tensor among the arguments of a call with the recorded results `outputs`."""

    base: str
    name: str
    position: int
    spec: TensorSpec
    arguments: Mapping[str, Any]
    outputs: Sequence[TensorSpec]

    def fits(self, pattern: str) -> bool:
        """Whether the pattern matches OPERATOR.ARGUMENT."""
        return re.fullmatch(pattern, f"{self.base}.{self.name}") is not None


def draws(
    operator_tuple: OperatorTuple,
    outputs: Sequence[TensorSpec],
    values: Sequence[torch.Tensor] = (),
) -> Iterator[Draw]:
    """A `Draw` for each tensor of a tuple, in the order of `OperatorTuple.tensors`.

    `outputs` are the recorded results; without them, their sizes are not reproduced. Of `values`,
    if given, floating-point tensors are used as they are. Raises UnsupportedOperator for integers
    whose allowed values are unknown.
    """
    for argument, given in zip_longest(_arguments(operator_tuple, outputs), values):
        if given is not None and argument.spec.may_have_zeros:
            yield _as_given(argument.spec, given)
            continue
        draw = _draw(argument, operator_tuple.in_place)
        if draw is None:
            raise UnsupportedOperator(
                f"{operator_tuple.name}: opcost does not know which integers its argument "
                f"{argument.name!r} ({argument.spec}) may hold. {VALUES_REMEDY}"
            )
        yield _with_zeros(argument.spec, draw) if argument.spec.zeros else draw


def _arguments(operator_tuple: OperatorTuple, outputs: Sequence[TensorSpec]) -> Iterator[_Argument]:
    arguments = dict(operator_tuple.arguments)
    base = operator_tuple.name.removesuffix("_").removeprefix("_foreach_")
    for name, value in operator_tuple.arguments:
        for position, spec in enumerate(tensors_in(value)):
            yield _Argument(base, name, position, spec, arguments, outputs)


def _draw(argument: _Argument, in_place: bool) -> Draw | None:
    """The `Draw` of a tensor without the zeros of the tuple; None if it is unknown."""
    base, name, spec = argument.base, argument.name, argument.spec
    if (special := _special(argument)) is not None:
        return special
    if not spec.may_have_zeros:
        return _integral(argument)
    for pattern, draw in _DOMAINS:
        if argument.fits(pattern):
            return draw
    if base in _BRANCHING:
        return _magnitude if spec.zeros else _rectified
    if in_place and base in _SHRINKING and name == "self":
        return _far_from_zero
    if in_place and base in ("mul", "div") and name == "other":
        return _signs
    return _normal


def _integral(argument: _Argument) -> Draw | None:
    """The `Draw` of integers or truth values."""
    limit = _index_limit(argument)
    if limit is not None:
        return _integers(limit)
    if argument.fits(_DIVISORS):
        return _ones
    if argument.fits(_VARIED):
        return _integers(100)
    zeros_and_ones_do = argument.spec.dtype == "bool" or not argument.spec.elements
    return _integers(2) if zeros_and_ones_do or argument.fits(_DATA) else None


_DATA = (
    r".*\.(self|other|input[12]?|tensors?|src|source|values?|x|y|n|end|min|max|tensor[12]|mat[12]?"
    r"|vec[12]?|batch[12]|out|data|condition|mask|(test_)?elements|sequences|prepend|append|A"
    r"|exponent|weights?|grad.*|zero_point|counts?|fweights|philox_(seed|offset)|rng_state|reserve.*"
    r"|dropout_state|workspace)|.*_embedding_loss\.target"
)
"""OPERATOR.ARGUMENT whose integers may have any value, because they are computed with or copied."""

_VARIED = (
    r"(gcd|lcm|pow|special_.*polynomial.*|(arg|m)?sort|topk|kthvalue|mode|(nan)?median|isin|cummax"
    r"|cummin)\..*"
)
"""Operators that take longer for larger integers, or for more distinct ones."""

_DIVISORS = r"(div|divide|true_divide|floor_divide|remainder|fmod)\.other"


_BRANCHING = {"max_pool1d", "max_pool2d", "max_pool3d"}
"""On a CPU, these branch on values: normal ones take 2.8 times as long as zeros (3.2 and 1.1 ms for
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
    """The tuple with factors of magnitude 1 where it multiplies its operand by a number in place.

    Thousands of iterations would otherwise drive the operand to infinity, or to subnormal numbers,
    which are slower on processors. No kernel is faster for another factor.
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


def _index_limit(argument: _Argument) -> int | None:
    """The exclusive upper limit of an index argument, or None for other arguments."""
    base, name, arguments = argument.base, argument.name, argument.arguments
    table = arguments.get("self", arguments.get("input"))
    match base, name:
        case "embedding_renorm", "indices":
            return _size(table.shape, 0)
        case _, "indices" | "maximum_indices" if "num_weights" in arguments:
            return arguments["num_weights"]  # the gradient of an embedding
        case _, "indices" if "embedding" in base:
            return _size(arguments["weight"].shape, 0)
        case _, "target" if "loss" in base and table is not None:
            return _size(table.shape, 1 if len(table.shape) > 1 else 0)
        case _, "indices" if "pool" in base:  # places within a plane
            plane = int(base[base.index("pool") + 4])
            return math.prod(arguments.get("output_size", table.shape)[-plane:])
        case "value_selecting_reduction_backward", "indices":
            return _size(arguments["sizes"], arguments["dim"])
        case "index_select_backward", "index":
            return _size(arguments["self_sizes"], arguments["dim"])
        case _, "indices" if "index" in base:
            # The list holds None for a dimension that is not indexed.
            axes = [axis for axis, value in enumerate(arguments["indices"]) if value is not None]
            return _size(table.shape, axes[argument.position])
        case (("take" | "put"), "index"):
            return table.elements
        case "take_along_dim", "indices":
            dim = arguments.get("dim")
            return table.elements if dim is None else _size(table.shape, dim)
        case _, "index" if "dim" in arguments and table is not None:
            return _size(table.shape, arguments["dim"])
        case (("bucketize" | "searchsorted"), "self"):
            return _size(arguments.get("boundaries", arguments.get("sorted_sequence")).shape, -1)
    return None


def _size(shape: Sequence[int], axis: int) -> int:
    """The size along an axis; 1 for a scalar."""
    return shape[axis] if shape else 1


def hold_indices(operator_tuple: OperatorTuple) -> Iterator[bool]:
    """Whether each tensor of a tuple, in the order of `OperatorTuple.tensors`, selects elements."""
    for argument in _arguments(operator_tuple, ()):
        whole = argument.spec.dtype != "bool" and not argument.spec.may_have_zeros
        yield whole and _index_limit(argument) is not None


def _normal(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    # Drawn in at least float32, because not every device supports float16.
    drawn = dtype if dtype in (torch.float64, torch.complex64, torch.complex128) else torch.float32
    return torch.randn(count, dtype=drawn, device=generator.device, generator=generator).to(dtype)


def _changed(change: Callable[[torch.Tensor], torch.Tensor]) -> Draw:
    return lambda count, dtype, generator: change(_normal(count, dtype, generator))


_positive = _changed(lambda drawn: drawn.abs() + 0.5)
_above_one = _changed(lambda drawn: drawn.abs() + 1.5)
_dozens = _changed(lambda drawn: (20 * drawn.abs()).ceil())
_rectified = _changed(torch.relu)
_magnitude = _changed(torch.abs)
_far_from_zero = _changed(lambda drawn: drawn + 20 * drawn.sgn())
_signs = _changed(torch.sgn)
_ones = _changed(torch.ones_like)


def _probability(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(count, device=generator.device, generator=generator).to(dtype)


def _integers(limit: int) -> Draw:
    def draw(count: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        drawn = torch.randint(limit, (count,), device=generator.device, generator=generator)
        return drawn.to(dtype)

    return draw


_DOMAINS: tuple[tuple[str, Draw], ...] = (
    (
        r".*\.((running_|save_)?var|(save_)?invstd|rstd|std|logsumexp|total_weight|tensor2|window"
        r"|(max_)?exp_avg_sqs|state_sums|state_steps|denominators|saved_norms|[cp]dist|aweights"
        r"|.*scales?)|(r?sqrt|log(2|10|1p)?|pow|float_power|xlogy|a(rc)?cosh|(l|di|poly|mvl)gamma"
        r"|_standard_gamma(_grad)?|_sample_dirichlet|_dirichlet_grad|igammac?|poisson)\..*",
        _positive,
    ),
    (r".*(loss|cross_entropy).*\.(pos_)?weight|special_zeta\..*", _above_one),
    (r"binomial\.count|special_.*polynomial.*\.n", _dozens),
    (
        r"binary_cross_entropy(?!.*logits).*\.(self|target)|kl_div\.target"
        r"|(bernoulli|multinomial|logit|special_ndtri)\.(self|p)"
        r"|.*\.(prob|q|random_samples|is_target)",
        _probability,
    ),
    (
        r"grid_sampler.*\.grid|(a(rc)?sin|a(rc)?cos|a(rc)?tanh|erfinv)\.self",
        lambda count, dtype, generator: (_probability(count, torch.float32, generator) * 2 - 1).to(
            dtype
        ),
    ),
)
"""OPERATOR.ARGUMENT of floating-point numbers, and their values; the first match is used.

Variances, their roots, sums of exponentials, counts and divisors are positive.
"""

_REGIONS = {
    f"torchvision.{name}"
    for pool in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
    for name in (pool, f"_{pool}_backward")
}


_Values = Callable[[torch.Generator], torch.Tensor]
"""Makes values of a shape that expands to the tensor's."""


def _special(argument: _Argument) -> Draw | None:
    """A `Draw` for an argument whose values determine sizes, or have an order; else None."""
    dense = _dense(argument.spec)
    values = _structured(replace(argument, spec=dense))
    return None if values is None else _strided(dense, values)


def _dense(spec: TensorSpec) -> TensorSpec:
    """The spec without repetitions of an expanded tensor."""
    pairs = zip(spec.shape, strides(spec), strict=True)
    return replace(spec, shape=tuple(size if step else 1 for size, step in pairs))


def _as_given(spec: TensorSpec, values: torch.Tensor) -> Draw:
    dense = _dense(spec)
    return _strided(dense, lambda _: values[tuple(map(slice, dense.shape))])


def _structured(argument: _Argument) -> _Values | None:
    base, spec, arguments, fits = argument.base, argument.spec, argument.arguments, argument.fits
    sizes = [each.shape for each in argument.outputs]
    if base in _REGIONS and argument.name == "rois":
        return lambda generator: _regions(spec, arguments, generator)
    if fits(r"torchvision\.nms\.dets"):
        kept = sizes[0][0] if sizes else spec.shape[0]
        return lambda generator: _boxes(spec.shape[0], kept, generator)
    if fits(r"_unique2?\.self") and sizes:
        distinct = max(argument.outputs[0].elements, 1)
        return lambda generator: _shuffled(spec, generator) % distinct
    if fits(r"unique_(dim|consecutive)\.self") and sizes:
        axis = arguments.get("dim")
        return lambda generator: _runs(spec, axis, _size(sizes[0], axis or 0), generator)
    if fits(r"(bincount|one_hot)\.self") and sizes:
        last = max(sizes[0][-1], 1) - 1
        return lambda generator: last - _shuffled(spec, generator) % (last + 1)
    if fits(r".*ctc_loss.*\.targets"):
        classes, blank = arguments["log_probs"].shape[-1], arguments.get("blank", 0)
        labels = _integers(max(classes - 1, 1))
        return lambda generator: (
            (labels(spec.elements, torch.int64, generator).view(spec.shape) + blank + 1) % classes
        )
    if fits(_FACTORS):
        return lambda generator: _definite(spec, generator)
    if fits(r"(searchsorted|bucketize|_?histogram.*)\.(sorted_sequence|boundaries|bins)"):
        return lambda generator: _ascending(spec, generator)
    if (counts := _counts(argument)) is not None:
        return lambda generator: counts.to(generator.device).expand(spec.shape)
    selected = _selected(argument)
    if selected is not None:
        return lambda generator: _shuffled(spec, generator) < selected
    if fits(r"(where\.condition|masked_fill\.mask)") and spec.shape:
        return lambda generator: _prefixes(spec, generator)
    return None


_FACTORS = (
    r"(linalg_)?cholesky(_ex|_inverse)?\.self|(_?cholesky_solve.*)\.(input2|A)"
    r"|linalg_solve_triangular\.self|triangular_solve\.A|lu_solve\.LU_data|linalg_lu_solve\.LU"
)
"""Matrices that are positive definite, or triangular factors to divide by."""


def _counts(argument: _Argument) -> torch.Tensor | None:
    """Lengths, offsets and other integers in order, which follow from sizes; else None."""
    base, name, arguments = argument.base, argument.name, argument.arguments
    outputs, count = argument.outputs, _size(argument.spec.shape, -1)
    match base, name:
        case _, "offs" if base in GROUPED_PRODUCTS:
            first, second = arguments["self"].shape, arguments["mat2"].shape
            shared = first[1] if len(second) == 2 else first[0]
            return _starts(count, shared if len(first) == 2 else second[1])[1:]
        case _, "offsets" if "embedding_bag" in base:
            bags = count - bool(arguments.get("include_last_offset"))
            return _starts(bags, arguments["indices"].elements)[:count]
        case _, "offset2bag":
            return torch.arange(count) * arguments["grad"].shape[0] // max(count, 1)
        case _, "bag_size":
            return _starts(count, arguments["indices"].elements).diff()
        case (("segment_reduce" | "_segment_reduce_backward"), "lengths" | "offsets"):
            total = arguments["data"].shape[arguments.get("axis", 0)]
            return _starts(count, total).diff() if name == "lengths" else _starts(count - 1, total)
        case "repeat_interleave", "repeats" if outputs:
            times = _size(outputs[0].shape, arguments.get("dim") or 0)
            of = arguments.get("self", argument.spec)
            whole = of.elements if arguments.get("dim") is None else of.shape[arguments["dim"]]
            return _starts(count, times * count // max(whole, 1)).diff()
        case _, "input_lengths" if "ctc_loss" in base:
            return torch.tensor(arguments["log_probs"].shape[0])
        case _, "target_lengths" if "ctc_loss" in base:
            labels = arguments["targets"].shape
            paths = arguments.get("log_alpha", outputs[1] if len(outputs) > 1 else None)
            longest = -(-labels[0] // max(count, 1)) if len(labels) == 1 else labels[1]
            longest = longest if paths is None else paths.shape[2] // 2
            each = torch.full((count,), longest)
            return _falling(count, labels[0], longest) if len(labels) == 1 else each
        case "_pack_padded_sequence", "lengths" if outputs:
            return _falling(count, outputs[0].shape[0], outputs[1].shape[0])
        case _, "batch_sizes":
            return _batch_sizes(argument, count)
        case "searchsorted", "sorter":
            return torch.arange(count)
        case _, "pivots" | "LU_pivots":
            return torch.arange(1, count + 1)
    return None


def _batch_sizes(argument: _Argument, count: int) -> torch.Tensor | None:
    """The number of packed sequences that reach each position."""
    arguments, outputs = argument.arguments, argument.outputs
    axis = 0 if arguments.get("batch_first") else 1
    if "hx" in arguments:
        [first, *_] = tensors_in(arguments["hx"])
        return _falling(count, arguments["data"].shape[0], first.shape[1])
    if "input_size" in arguments:
        return _falling(count, arguments["grad"].shape[0], arguments["input_size"][axis])
    return _falling(count, arguments["data"].shape[0], outputs[0].shape[axis]) if outputs else None


def _starts(parts: int, size: int) -> torch.Tensor:
    """The starts of parts of about equal size, and the end of the last one."""
    return torch.arange(parts + 1) * size // max(parts, 1)


def _falling(count: int, total: int, first: int) -> torch.Tensor:
    """`count` decreasing whole numbers with that sum and first number."""
    others = _starts(count - 1, total - first).diff().sort(descending=True).values
    return torch.cat([torch.tensor([first]), others])


def _selected(argument: _Argument) -> int | None:
    """The number of true elements of a mask, from the recorded results, or None."""
    base, spec, arguments = argument.base, argument.spec, argument.arguments
    outputs = argument.outputs
    if base in ("masked_select", "masked_scatter") and argument.name == "mask":
        taken = arguments.get("source", outputs[0] if outputs else None)
        every = math.prod(torch.broadcast_shapes(spec.shape, arguments["self"].shape))
        return None if taken is None else taken.elements * spec.elements // max(every, 1)
    if base in ("index_put", "_index_put_impl") and spec.dtype == "bool":
        outputs = [arguments["values"]] if arguments["values"].shape else []
    if not outputs:
        return None
    match base, argument.name:
        case ("where", "condition") if "self" not in arguments:
            return outputs[0].shape[0]
        case (("nonzero" | "argwhere"), "self"):
            return outputs[0].shape[0]
        case (("index" | "index_put" | "_index_put_impl"), "indices") if spec.dtype == "bool":
            before = [value is None for value in arguments["indices"]].index(False)
            return outputs[0].shape[before]
    return None


def _strided(spec: TensorSpec, values: _Values) -> Draw:
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


def _runs(
    spec: TensorSpec, axis: int | None, distinct: int, generator: torch.Generator
) -> torch.Tensor:
    """`distinct` different values along an axis, or in all, each in consecutive places."""
    count = spec.elements if axis is None else _size(spec.shape, axis)
    values = torch.arange(count, device=generator.device) * distinct // max(count, 1)
    if axis is None:
        return values.view(spec.shape)
    return values.view([-1, *[1] * (len(spec.shape) - 1)]).movedim(0, axis).expand(spec.shape)


def _prefixes(spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    """Rows that are true up to a random place, like masks of attention and padding.

    A processor would mispredict the branch of each element of a random mask: 3 to 8 times the time,
    for 1x12x512x512.
    """
    *rows, length = spec.shape
    ends = torch.randint(length + 1, (*rows, 1), device=generator.device, generator=generator)
    return torch.arange(length, device=generator.device) < ends


def _ascending(spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    if not spec.may_have_zeros:
        return torch.arange(_size(spec.shape, -1), device=generator.device).expand(spec.shape)
    return torch.randn(spec.shape, device=generator.device, generator=generator).sort(-1).values


def _definite(spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    """Symmetric, diagonally dominant matrices."""
    part = torch.rand(spec.shape, device=generator.device, generator=generator).triu()
    return part + part.mT + spec.shape[-1] * torch.eye(spec.shape[-1], device=generator.device)


def _boxes(count: int, kept: int, generator: torch.Generator) -> torch.Tensor:
    """`count` boxes (x1, y1, x2, y2): `kept` disjoint ones, and copies of these."""
    options: dict[str, Any] = {"device": generator.device, "generator": generator}
    copies = torch.randint(max(kept, 1), (count - kept,), **options)
    distinct = torch.arange(kept, device=generator.device)
    corner = 2 * torch.cat([distinct, copies])[torch.randperm(count, **options)]
    return torch.stack([corner, corner, corner + 1, corner + 1], dim=1)


def _regions(
    spec: TensorSpec, arguments: Mapping[str, Any], generator: torch.Generator
) -> torch.Tensor:
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
