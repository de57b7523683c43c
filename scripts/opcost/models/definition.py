"""Model definitions: plain data from which `construction` builds modules.

A definition says what runs (a model, a factory or an operator, with arguments), how (mode,
precision, one layer, a step of generation) and on which inputs. Where a config has axes, each of
their points is a definition of its own.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from opcost.errors import OpcostError
from opcost.memory import gib

FORWARD, LOSS, BACKWARD, OPTIMIZER = PHASES = ("forward", "loss", "backward", "optimizer")
"""The phases of a training step, in order; inference is all forward."""

COMPARED_PHASES = (FORWARD, BACKWARD, OPTIMIZER)
"""The phases that are timed and compared: the loss counts as forward."""

UNSCALED = "training in float16 needs its gradients scaled, which opcost does not do: use bfloat16"

_USUAL = "float32"
_REAL = {"complex64": "float32", "complex128": "float64"}


def compared_phase(phase: str) -> str:
    """The phase under which a call is timed and compared."""
    return FORWARD if phase == LOSS else phase


_LARGEST_TENSOR_BYTES = 2**63

_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
ELEMENT_BYTES = {
    **dict.fromkeys(("bool", "uint8", "int8", *_FLOAT8), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}


@dataclass(frozen=True)
class InputSpec:
    """One example input: its shape with the batch dimension, its dtype and range.

    Integers and booleans are uniform within their `limits`, and so are floats if one of these is
    given; other floats are normal.
    """

    shape: tuple[int, ...]
    dtype: str | None = None
    high: float | None = None
    low: float | None = None

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest value, and an exclusive upper limit."""
        low = self.low or 0
        default = 2 if self.dtype == "bool" else low + 2
        return low, default if self.high is None else self.high

    def __str__(self) -> str:
        return "x".join(map(str, self.shape)) + (f":{self.dtype}" if self.dtype else "")


@dataclass(frozen=True)
class Training:
    """The parts of a training step other than forward.

    `loss` is a function of `torch.nn.functional` or `package.module:callable`, called with the
    output, the labels (`targets`) and its arguments; None if forward returns the loss. `targets`
    are tensors like the model's inputs, with their own arrangement. `optimizer` is a class of
    `torch.optim`; None leaves the weights unchanged.
    """

    loss: str | None = None
    loss_arguments: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[InputSpec, ...] = ()
    target_arrangement: Any = None
    optimizer: str | None = None
    optimizer_arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SingleOperator:
    """An isolated operator, defined instead of a model.

    `call` is its description. `parameters` names the arguments that are weights; None selects them
    by their usual names. `zeros` is the default share of zeros in floating-point tensors.
    """

    call: str
    parameters: tuple[str, ...] | None = None
    zeros: float = 0.0


@dataclass(frozen=True)
class ModelDefinition:
    """Everything that determines which operators a model executes.

    `inputs` are tensors: positional arguments, or one list if `inputs_in_list`, or placed by the
    `arrangement` (inputs.py). `seed` is used for weights and inputs, because sizes may depend on
    values. Parameters, buffers and inputs are converted to `dtype`; without it, they stay as they
    are built, and inputs without a dtype follow (`stating`). `zoo` marks a model selected by
    `torchvision`: it has the architecture of its published weights, and a failed extraction is
    recorded instead of raised. `source_digest` is a digest of the code of a factory and a loss
    beside their config, without comments and formatting, and of the file of `weights`, which are
    random without one. `training` is None for inference.
    `autocast` is the dtype of torch.autocast, None without it. `cached_tokens` is None unless an
    iteration is a step of text generation: the number of tokens before the inputs whose keys and
    values are cached. `layer` is the path of a module that is run isolated, on the arguments that
    it gets in the model; None for the model itself. `operator` is an isolated operator, whose
    tensors have `dtype` and `memory_format` by default.
    """

    name: str
    inputs: tuple[InputSpec, ...]
    model: str | None = None
    factory: str | None = None
    arguments: Mapping[str, Any] | None = None
    inputs_in_list: bool = False
    dtype: str | None = None
    memory_format: str = "contiguous"
    mode: str = "inference"
    seed: int = 0
    zoo: bool = False
    source_digest: str | None = None
    arrangement: Any = None
    training: Training | None = None
    autocast: str | None = None
    cached_tokens: int | None = None
    layer: str | None = None
    operator: SingleOperator | None = None
    weights: str | None = None

    @property
    def is_operator(self) -> bool:
        """Whether it is an isolated operator, which is not measured end to end."""
        return self.operator is not None

    @property
    def trains(self) -> bool:
        """Whether an iteration is a training step."""
        return self.training is not None

    @property
    def generates(self) -> bool:
        """Whether an iteration is a step of text generation."""
        return self.cached_tokens is not None

    @property
    def source(self) -> str:
        """The model or factory, as errors name it."""
        return str(self.model or self.factory)

    @property
    def code(self) -> tuple[str | None, str | None, str | None, str | None]:
        """Factory, loss, model and weights, whose code and values determine the calls."""
        loss = self.training.loss if self.training else None
        return self.factory, loss, self.model, self.weights

    @property
    def has_named_weights(self) -> bool:
        """Whether `weights` is a name in torchvision, not a file."""
        return self.weights is not None and self.weights.isidentifier()

    @property
    def batch_size(self) -> int | None:
        """The samples of an iteration: the first size of the inputs, or the length of their list;
        None if the inputs differ in it.
        """
        if self.inputs_in_list:
            return len(self.inputs)
        sizes = {spec.shape[0] if spec.shape else None for spec in self.inputs}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def further_inputs(self) -> tuple[InputSpec, ...]:
        """The inputs of an iteration other than `inputs`: labels, or the tokens that fill a cache,
        which are as `inputs`, with `cached_tokens`.
        """
        if self.training is not None:
            return self.training.targets
        return tuple(
            replace(spec, shape=(spec.shape[0], self.cached_tokens, *spec.shape[2:]))
            for spec in self.inputs
            if self.cached_tokens
        )

    def __post_init__(self) -> None:
        """Drop `dtype: float32` for models of libraries, which are built in float32."""
        if self.dtype == _USUAL and self.factory is None:
            object.__setattr__(self, "dtype", None)

    def stating(self, dtypes: Sequence[str]) -> Self:
        """The definition with the dtype of each input and label.

        Those without one get `dtype`, or one that follows from the parameters' `dtypes`.
        """
        dtype = self.dtype or usual_dtype(dtypes)

        def stated(specs: Iterable[InputSpec]) -> tuple[InputSpec, ...]:
            return tuple(replace(spec, dtype=spec.dtype or dtype) for spec in specs)

        training = self.training
        if training is not None:
            training = replace(training, targets=stated(training.targets))
        return replace(self, inputs=stated(self.inputs), training=training)

    def to_json(self) -> str:
        """The definition as one line of JSON; equal definitions have equal JSON.

        Keys without a value are left out, so that adding a key does not change definitions.
        """
        document = {key: value for key, value in asdict(self).items() if value is not None}
        for tensor in (*document["inputs"], *document.get("training", {}).get("targets", ())):
            if tensor["low"] is None:
                del tensor["low"]
        return json.dumps(document, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The definition that `to_json` wrote."""
        document = json.loads(text)
        document["inputs"] = _specs(document["inputs"])
        if training := document.get("training"):
            document["training"] = Training(**{**training, "targets": _specs(training["targets"])})
        if operator := document.get("operator"):
            names = operator["parameters"]
            parameters = None if names is None else tuple(names)
            document["operator"] = SingleOperator(**{**operator, "parameters": parameters})
        return cls(**document)


def usual_dtype(dtypes: Iterable[str]) -> str:
    """The default dtype of inputs: that of the first parameter that is computed with."""
    usable = (_REAL.get(each, each) for each in dtypes if not each.startswith("float8"))
    return next(usable, _USUAL)


def named_part(name: str, what: str, value: object) -> str:
    """The name of a part or variant of a model: `net[batch=8,size=224]`."""
    head = f"{name.removesuffix(']')}," if name.endswith("]") else f"{name}["
    return f"{head}{what}={value}]"


def _specs(documents: Iterable[Mapping[str, Any]]) -> tuple[InputSpec, ...]:
    return tuple(InputSpec(**{**spec, "shape": tuple(spec["shape"])}) for spec in documents)


def input_bytes(definition: ModelDefinition) -> int:
    """The size of all inputs. Raises OpcostError for a tensor of impossible size."""
    specs = (*definition.inputs, *definition.further_inputs)
    return sum(bytes_of_input(definition, spec) for spec in specs)


def bytes_of_input(definition: ModelDefinition, spec: InputSpec) -> int:
    """The size of one input. Raises OpcostError for an impossible one."""
    size = math.prod(spec.shape) * ELEMENT_BYTES[spec.dtype or definition.dtype or "float32"]
    if size >= _LARGEST_TENSOR_BYTES:
        raise OpcostError(
            f"model {definition.name}: an input of {spec} would have {gib(size)}; no tensor is "
            f"larger than {gib(_LARGEST_TENSOR_BYTES)}. Give smaller sizes"
        )
    return size
