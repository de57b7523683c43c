"""Steps of text generation: a language model with a cache of the keys and values of earlier tokens.

A step computes only what generation needs: the keys and values of its tokens, and the logits of the
last of them, if the model can omit the others. It is called like the model.
"""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from opcost.errors import OpcostError
from opcost.models.conditions import autocast
from opcost.models.inputs import Arguments

_CACHES = ("cache", "past_key_values", "cache_params")
"""Names of the cache in libraries, as argument and in the output of forward."""

_LAST_LOGITS = "logits_to_keep"


class GenerationStep:
    """Runs forward on tokens that follow the `cached` ones.

    Without `cached` tokens, the step is a prefill, in which forward makes a cache. Other steps find
    the same cache each time: additions are removed again, which moves no data.
    """

    def __init__(self, module: nn.Module, cached: Arguments | None, dtype: str | None) -> None:
        self.module = module
        self._cached, self._dtype = cached, dtype
        self._cache: Any = None
        self._states: list[tuple[Any, dict[str, Any]]] = []
        taken = inspect.signature(module.forward).parameters
        self._name = next((name for name in _CACHES if name in taken), None)
        if self._name is None:
            raise OpcostError(
                f"the forward of {type(module).__name__} takes none of {', '.join(_CACHES)}, so it "
                "has no cache of keys and values: use a language model as those of transformers "
                "that generate text"
            )
        if getattr(getattr(module, "config", None), "is_encoder_decoder", False):
            raise OpcostError(
                f"{type(module).__name__} has an encoder and a decoder, and its steps take the "
                "results of both: use a model that is a decoder alone"
            )
        wanted = {"use_cache": True, _LAST_LOGITS: 1}
        self._options = {name: value for name, value in wanted.items() if name in taken}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run forward on the new tokens."""
        output = self._forward(Arguments(args, kwargs), self._cache)
        self._restore()
        return output

    def prepare(self, inputs: Arguments) -> None:
        """Fill the cache by a forward of the cached tokens.

        Raises OpcostError without a cache, and for inputs that the step itself sets.
        """
        own = {*self._options, self._name} & inputs.kwargs.keys()
        if own:
            raise OpcostError(
                f"inputs: {', '.join(sorted(map(str, own)))}: a step of generating text sets it: "
                "leave it out"
            )
        if self._cached is None:
            return
        output = self._forward(self._cached)
        cache = next(filter(None, (getattr(output, name, None) for name in _CACHES)), None)
        if cache is None:
            raise OpcostError(
                f"forward of {type(self.module).__name__} returned none of {', '.join(_CACHES)}: "
                "it caches no keys and values, so it has no steps of generating text"
            )
        self._cache, self._cached = cache, None
        parts = [cache, *getattr(cache, "layers", ())]
        self._states = [(part, dict(vars(part))) for part in parts if hasattr(part, "__dict__")]
        before = [tensor.shape for tensor in self.cached_tensors()]
        self(*inputs.args, **inputs.kwargs)
        if before != [tensor.shape for tensor in self.cached_tensors()]:
            raise OpcostError(
                f"a {type(cache).__name__} keeps what a step adds to it, so steps would differ: "
                "use a model whose cache is a DynamicCache"
            )

    def cached_tensors(self) -> Iterator[torch.Tensor]:
        """The keys and values in the cache."""
        for part in (self._cache, *getattr(self._cache, "layers", ())):
            for leaf in tree_leaves([*vars(part).values()] if hasattr(part, "__dict__") else part):
                if isinstance(leaf, torch.Tensor):
                    yield leaf

    def _forward(self, inputs: Arguments, cache: Any = None) -> Any:
        held: Mapping[Any, Any] = {} if cache is None else {self._name: cache}
        with autocast(self.module, self._dtype):
            return self.module(*inputs.args, **inputs.kwargs, **held, **self._options)

    def _restore(self) -> None:
        for part, state in self._states:
            vars(part).update(state)
