"""A request to a language model as its steps: a prefill of the prompt, and one for each further
token.

Decoding steps differ only in the number of cached tokens. Some of them are models of the study; the
cost of others is interpolated (opcost.costs.interpolation).
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

from opcost.configuration import invalid
from opcost.models.definition import named_part
from opcost.values import shown

_MEASURED_LENGTHS = 5

_TOKENS = (
    "generating text needs one tensor of inputs, of a batch and tokens, such as "
    "input_ids: {shape: [1, 512], dtype: int64, high: 32000}"
)
_NO_MASK = "it needs no mask, because all sequences of a batch have the same length"


@dataclass(frozen=True)
class Generation:
    """A request: `prompt_tokens` in, `new_tokens` out, for each sequence of a batch.

    The prefill makes the first new token. `cache_lengths` are those of the measured steps.
    """

    name: str
    batch_size: int
    prompt_tokens: int
    new_tokens: int
    cache_lengths: tuple[int, ...]

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The request from its JSON."""
        return cls(**{**document, "cache_lengths": tuple(document["cache_lengths"])})

    @property
    def steps(self) -> range:
        """The number of cached tokens in each step of decoding."""
        return range(self.prompt_tokens, self.prompt_tokens + self.new_tokens - 1)

    @property
    def prefill(self) -> str:
        """The name of the prefill's model."""
        return named_part(self.name, "prompt", self.prompt_tokens)

    def step(self, cached_tokens: int) -> str:
        """The name of a decoding step's model."""
        return named_part(self.name, "cache", cached_tokens)

    @property
    def models(self) -> list[str]:
        """The names of the models of its measured steps."""
        return [self.prefill, *map(self.step, self.cache_lengths)]


def check_step(document: Mapping[str, Any], tensors: int, source: str) -> None:
    """Raise OpcostError if a config with `cached_tokens` and this number of input tensors is not a
    step of generation.
    """
    if document.get("cached_tokens") is None:
        return
    if document["mode"] == "training":
        raise invalid(
            source,
            "mode: training generates no text: leave it out, or generation and cached_tokens",
        )
    if document["inputs_in_list"]:
        raise invalid(source, f"inputs_in_list: true: {_TOKENS}")
    _tokens_of(document["inputs"], source)
    if tensors != 1:
        raise invalid(source, f"inputs: {shown(document['inputs'])}: {_TOKENS}")


def read_generation(
    name: str, document: Mapping[str, Any], source: str
) -> tuple[Generation | None, dict[str, dict[str, Any]]]:
    """The request of a model config that fits its schema, and the configs of its steps by name.

    A config without `generation` is returned as it is. Raises OpcostError.
    """
    config = dict(document)
    wanted = config.pop("generation", None)
    if wanted is None:
        return None, {name: config}
    if config.get("cached_tokens") is not None:
        raise invalid(source, "cached_tokens: generation says how many are cached: leave it out")
    key, tokens = _tokens_of(config["inputs"], source)
    batch, prompt, *further = tokens["shape"]
    request = Generation(name, batch, prompt, wanted["new_tokens"], ())
    window = config["arguments"].get("sliding_window")
    lengths = _lengths(wanted.get("cache_lengths"), request.steps, window, source)
    request = replace(request, cache_lengths=lengths)
    one_token = copy(config["inputs"])
    one_token[key] = {**tokens, "shape": [batch, 1, *further]}
    step = {**config, "inputs": one_token}
    prefill = {request.prefill: {**config, "cached_tokens": 0}}
    return request, prefill | {
        request.step(length): {**step, "cached_tokens": length} for length in lengths
    }


def _lengths(given: list[int] | None, steps: range, window: Any, source: str) -> tuple[int, ...]:
    """The given lengths, or some over all steps and the one that fills a sliding `window`, where
    the work of a step stops growing.
    """
    first, last = steps[0], steps[-1]
    if given is None:
        parts = max(1, min(_MEASURED_LENGTHS, len(steps)) - 1)
        spread = {first + (last - first) * n // parts for n in range(parts + 1)}
        full = {window - 1} if isinstance(window, int) and window - 1 in steps else set()
        return tuple(sorted(spread | full))
    found = tuple(sorted(set(given)))
    if found[0] > first or found[-1] < last:
        raise invalid(
            source,
            f"generation.cache_lengths: {given}: the steps find {first} to {last} cached tokens: "
            "name lengths from the first to the last, between which costs are interpolated",
        )
    return found


def _tokens_of(inputs: Any, source: str) -> tuple[Any, Mapping[str, Any]]:
    """The name or position of the only input tensor, and the tensor, of a batch and tokens."""
    every = inputs if isinstance(inputs, Mapping) else dict(enumerate(inputs))
    tensors = {
        name: each for name, each in every.items() if isinstance(each, Mapping) and "shape" in each
    }
    if len(tensors) == 1:
        [(name, tokens)] = tensors.items()
        if len(tokens["shape"]) > 1:
            return name, tokens
    names = [*map(str, tensors)]
    several = f"; the tensors here are {', '.join(names)}" if len(names) > 1 else ""
    masks = ", ".join(name for name in names if "mask" in name)
    remedy = f": leave out {masks}: {_NO_MASK}" if masks else ""
    raise invalid(source, f"inputs: {shown(inputs)}: {_TOKENS}{several}{remedy}")
