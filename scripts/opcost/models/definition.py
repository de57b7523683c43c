"""What a model is: plain data, from which `models` builds it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True)
class InputSpec:
    """One example input: its shape with the batch dimension, and what to fill it with."""

    shape: tuple[int, ...]
    dtype: str | None = None
    high: int | None = None

    def __str__(self) -> str:
        return "x".join(map(str, self.shape)) + (f":{self.dtype}" if self.dtype else "")


@dataclass(frozen=True)
class ModelDefinition:
    """All that decides which operators a model executes.

    `inputs` are positional, or one list if `inputs_in_list`. `seed` is that of weights and inputs:
    with some models, sizes depend on values. `zoo` marks a model chosen from all of torchvision: it
    has the architecture of its published weights, and if it cannot be extracted, this is recorded
    instead of raised. `source_digest` covers the code of a factory that lies beside its config:
    comments and formatting do not change it.
    """

    name: str
    inputs: tuple[InputSpec, ...]
    model: str | None = None
    factory: str | None = None
    arguments: Mapping[str, Any] | None = None
    inputs_in_list: bool = False
    dtype: str = "float32"
    memory_format: str = "contiguous"
    mode: str = "inference"
    seed: int = 0
    zoo: bool = False
    source_digest: str | None = None

    def to_json(self) -> str:
        """The definition as one line of JSON, the same for equal definitions."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The definition that `to_json` wrote."""
        document = json.loads(text)
        inputs = tuple(
            InputSpec(**{**spec, "shape": tuple(spec["shape"])}) for spec in document["inputs"]
        )
        return cls(**{**document, "inputs": inputs})
