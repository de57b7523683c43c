"""A request to a language model as its steps: a prefill of the prompt, and one for each further
token.

Decoding steps differ only in the number of cached tokens. Some of them are models of the study; the
cost of others is interpolated (opcost.costs.interpolation).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from opcost.configuration import invalid
from opcost.errors import OpcostError
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
        raise invalid(source, "cached_tokens: training caches no keys and values: leave it out")
    if tensors != 1 or _tokens_of(document["inputs"]) is None:
        raise _without_tokens(document["inputs"], source)


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
    if config["mode"] == "training":
        raise invalid(source, "generation: training generates no text: leave out one of the two")
    if config["inputs_in_list"]:
        raise invalid(source, f"inputs_in_list: true: {_TOKENS}")
    if config.get("cached_tokens") is not None:
        raise invalid(source, "cached_tokens: generation says how many are cached: leave it out")
    tokens = _tokens_of(config["inputs"])
    if tokens is None:
        raise _without_tokens(config["inputs"], source)
    batch, prompt = tokens["shape"][:2]
    request = Generation(name, batch, prompt, wanted["new_tokens"], ())
    window = config["arguments"].get("sliding_window")
    lengths = _lengths(wanted.get("cache_lengths"), request.steps, window, source)
    request = Generation(name, batch, prompt, wanted["new_tokens"], lengths)
    one = {**tokens, "shape": [batch, 1, *tokens["shape"][2:]]}
    configs = {request.prefill: {**config, "cached_tokens": 0}}
    for length in lengths:
        inputs = _replaced(config["inputs"], one)
        configs[request.step(length)] = {**config, "inputs": inputs, "cached_tokens": length}
    return request, configs


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


def _tokens_of(inputs: Any) -> Mapping[str, Any] | None:
    """The only input tensor, if it has dimensions for batch and tokens; else None."""
    found = [*_tensors(inputs).values()]
    return found[0] if len(found) == 1 and len(found[0]["shape"]) > 1 else None


def _tensors(inputs: Any) -> dict[Any, Mapping[str, Any]]:
    """The tensors among the arguments, by name or position."""
    every = inputs if isinstance(inputs, Mapping) else dict(enumerate(inputs))
    return {
        name: each for name, each in every.items() if isinstance(each, Mapping) and "shape" in each
    }


def _without_tokens(inputs: Any, source: str) -> OpcostError:
    """The error for inputs other than one tensor of tokens."""
    tensors = [str(name) for name in _tensors(inputs)]
    several = f"; the tensors here are {', '.join(tensors)}" if len(tensors) > 1 else ""
    masks = [name for name in tensors if "mask" in name]
    remedy = f": leave out {', '.join(masks)}: {_NO_MASK}" if masks else ""
    return invalid(source, f"inputs: {shown(inputs)}: {_TOKENS}{several}{remedy}")


def _replaced(inputs: Any, tokens: Mapping[str, Any]) -> Any:
    def new(each: Any) -> Any:
        return tokens if isinstance(each, Mapping) and "shape" in each else each

    if isinstance(inputs, Mapping):
        return {key: new(each) for key, each in inputs.items()}
    return [new(each) for each in inputs]
