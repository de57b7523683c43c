"""The arguments of a model's forward, as a config writes them.

They are a list of positional arguments, or a mapping of keyword arguments. An argument is a tensor,
which is a mapping with a `shape`; a list, a mapping or a `{tuple: [...]}` of arguments; or a
number, a boolean, a string or null.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from opcost.configuration import invalid, read_schema
from opcost.models.definition import InputSpec, Training
from opcost.values import shown

UNSCALED = "training in float16 needs its gradients scaled, which opcost does not do: use bfloat16"

_TUPLE = "tuple"
_RANGE = ("dtype", "low", "high")
_LIMITS = {
    "int64": (-(2**63), 2**63 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int16": (-(2**15), 2**15),
    "int8": (-(2**7), 2**7),
    "uint8": (0, 2**8),
    "bool": (0, 2),
}
_FLOATS = {"float16": (-(2.0**15), 2.0**15)}
_OTHER_FLOATS = (-1e30, 1e30)


class Arguments(NamedTuple):
    """The arguments of a model's forward, or of a loss after the output."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def to(self, device: Any) -> "Arguments":
        """The arguments with their tensors on a device."""
        from torch import Tensor
        from torch.utils._pytree import tree_map_only

        moved: Arguments = tree_map_only(Tensor, lambda tensor: tensor.to(device), self)
        return moved


NO_ARGUMENTS = Arguments((), {})


def read_arguments(
    document: Any, source: str, key: str = "inputs", least: int = 1
) -> tuple[tuple[InputSpec, ...], Any]:
    """The tensors of a config's key, in order, and their arrangement: None if each is a positional
    argument. The key must fit its schema. Raises OpcostError.
    """
    if isinstance(document, list) and all(map(_is_tensor, document)):
        places = (f"{key}.{number}" for number in range(len(document)))
        pairs = zip(document, places, strict=True)
        return tuple(read_tensor(each, place, source) for each, place in pairs), None
    if _is_tensor(document):
        raise invalid(
            source,
            f"{key}: {shown(document)} is a tensor: write the arguments "
            "as a list (- shape: ...), or by name (x: {shape: ...})",
        )
    tensors: list[InputSpec] = []

    def read(value: Any, place: str) -> Any:
        if _is_tensor(value):
            tensors.append(read_tensor(value, place, source))
            return {"tensor": len(tensors) - 1}
        if isinstance(value, list):
            return {"list": [read(each, f"{place}.{n}") for n, each in enumerate(value)]}
        if not isinstance(value, Mapping):
            return {"value": value}
        if list(value) == [_TUPLE] and isinstance(value[_TUPLE], list):
            return {"tuple": read(value[_TUPLE], f"{place}.{_TUPLE}")["list"]}
        if wrong := [key for key in _RANGE if key in value]:
            raise invalid(
                source,
                f"{place}: it has {wrong[0]}, but no shape: give the "
                "sizes of a tensor, such as shape: [8, 128], or another key for a mapping",
            )
        return {"dict": {key: read(each, f"{place}.{key}") for key, each in value.items()}}

    arrangement = read(document, key)
    if len(tensors) < least:
        raise invalid(
            source,
            f"{key}: {shown(document)} has no tensor: give the shape of "
            "at least one, such as {shape: [8, 3, 224, 224]}",
        )
    return tuple(tensors), arrangement


def read_training(document: dict[str, Any], source: str) -> Training | None:
    """The training step of a config that fits its schema; removes its keys from `document`.

    None if the mode is inference. Raises OpcostError.
    """
    keys = ("loss", "targets", "optimizer")
    precisions = (document.get("dtype"), document.get("autocast"))
    if document["mode"] == "training" and "float16" in precisions:
        raise invalid(source, UNSCALED)
    given = {key: value for key in keys if (value := document.pop(key, None)) is not None}
    if document["mode"] != "training":
        if given:
            raise invalid(
                source,
                f"{next(iter(given))}: it is for training: write mode: training, or leave it out",
            )
        return None
    if "targets" in given and "loss" not in given:
        raise invalid(
            source,
            "targets: they are given to a loss, but there is none: name "
            "one, such as loss: cross_entropy; what forward itself takes belongs to inputs",
        )
    targets, arrangement = read_arguments(given.get("targets", []), source, "targets", least=0)
    return Training(
        *_named(given.get("loss")), targets, arrangement, *_named(given.get("optimizer"))
    )


def _named(value: Any) -> tuple[str | None, dict[str, Any]]:
    """The name and the arguments in `NAME` or `{name: NAME, ...}`."""
    if not isinstance(value, Mapping):
        return value, {}
    return value["name"], {key: each for key, each in value.items() if key != "name"}


def arranged(arrangement: Any, tensors: Sequence[Any], in_list: bool = False) -> Arguments:
    """The arguments with these tensors in an arrangement.

    Without one, each is a positional argument, or all are one list.
    """
    if arrangement is None:
        return Arguments([list(tensors)] if in_list else list(tensors), {})

    def build(node: Mapping[str, Any]) -> Any:
        [(kind, content)] = node.items()
        return _BUILT[kind](content, build) if kind in _BUILT else tensors[content]

    found = build(arrangement)
    return Arguments((), found) if isinstance(found, dict) else Arguments(found, {})


_BUILT: Mapping[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "value": lambda content, _: content,
    "list": lambda content, build: [build(each) for each in content],
    "tuple": lambda content, build: tuple(build(each) for each in content),
    "dict": lambda content, build: {key: build(each) for key, each in content.items()},
}


def with_batch(document: Any, batch: int) -> Any:
    """The inputs of a config with another batch size.

    Raises ValueError if there is no tensor, or one without dimensions.
    """
    if not isinstance(document, list | dict) or not document:
        raise ValueError("no batch dimension")
    return _with_batch(document, batch)


def _with_batch(document: Any, batch: int) -> Any:
    if _is_tensor(document):
        if not isinstance(document["shape"], list) or not document["shape"]:
            raise ValueError("no batch dimension")
        return {**document, "shape": [batch, *document["shape"][1:]]}
    if isinstance(document, list):
        return [_with_batch(each, batch) for each in document]
    if isinstance(document, Mapping):
        return {key: _with_batch(each, batch) for key, each in document.items()}
    return document


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Mapping) and "shape" in value


def input_dtypes() -> list[str]:
    """The dtypes that an input may have."""
    found: list[str] = read_schema("model")["$defs"]["tensor"]["properties"]["dtype"]["enum"]
    return found


def read_tensor(value: Mapping[str, Any], place: str, source: str) -> InputSpec:
    """The tensor of a mapping that fits the schema. Raises OpcostError for a wrong range."""
    spec = InputSpec(tuple(value["shape"]), *(value.get(key) for key in ("dtype", "high", "low")))
    if (spec.dtype or "").startswith("complex") and (spec.low, spec.high) != (None, None):
        raise invalid(source, f"{place}: complex numbers have no range: leave out low and high")
    least, most = spec.limits
    if spec.dtype in _LIMITS and not all(isinstance(each, int) for each in (least, most)):
        raise invalid(
            source, f"{place}: low and high of {spec.dtype} are {least} and {most}: give integers"
        )
    if least >= most:
        raise invalid(source, f"{place}.high: {most} is not greater than low, which is {least}")
    allowed = {**_LIMITS, **_FLOATS}.get(spec.dtype or "", _OTHER_FLOATS)
    if not allowed[0] <= least <= most <= allowed[1]:
        raise invalid(
            source,
            f"{place}: low and high are {least} and {most}: give numbers "
            f"from {allowed[0]} to {allowed[1]} for {spec.dtype or 'floats'}",
        )
    return spec
