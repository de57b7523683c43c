"""What one model executes, and the file that says so: a pickle of plain data.

It is read by an unpickler that refuses every global, so that one from a stranger runs nothing.
"""

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from opcost.errors import OpcostError
from opcost.files import replacing
from opcost.models.definition import ModelDefinition
from opcost.tuples.tuple_record import SCHEMA_VERSION, TupleRecord, check_version


@dataclass(frozen=True)
class ModelTuples:
    """What one model executes: its distinct tuples, and its calls in order.

    A call is (index into `tuples`, module path, module class). `refusal` says why a model of the
    zoo could not be extracted: then there are no tuples, no calls, and no number of parameters.
    """

    model: str
    tuples: tuple[TupleRecord, ...]
    calls: tuple[tuple[int, str, str], ...]
    parameters: int | None
    torch_version: str
    definition: ModelDefinition | None = None
    extraction_s: float | None = None
    refusal: str | None = None

    @cached_property
    def by_id(self) -> dict[str, TupleRecord]:
        """The distinct tuples by tuple id."""
        return {record.operator_tuple.tuple_id: record for record in self.tuples}

    def call_counts(self) -> dict[str, int]:
        """How often the model calls each tuple, by tuple id."""
        counts = [0] * len(self.tuples)
        for index, _, _ in self.calls:
            counts[index] += 1
        return dict(zip(self.by_id, counts, strict=True))


def write_model_tuples(path: Path, tuples: ModelTuples) -> None:
    """Write a model's tuples as a plain-data pickle, whole or not at all."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "model": tuples.model,
        "tuples": [record.to_document() for record in tuples.tuples],
        "calls": [list(call) for call in tuples.calls],
        "parameters": tuples.parameters,
        "torch_version": tuples.torch_version,
        "definition": tuples.definition.to_json() if tuples.definition else None,
        "extraction_s": tuples.extraction_s,
        "refusal": tuples.refusal,
    }
    with replacing(path) as temporary:
        temporary.write_bytes(pickle.dumps(document, protocol=4))


def read_model_tuples(path: Path) -> ModelTuples:
    """Read a model's tuples. Raises OpcostError for a damaged or foreign file."""
    remedy = f"delete {path} and run again to extract the model anew"
    try:
        with path.open("rb") as file:
            document = _PlainUnpickler(file).load()
        check_version(document, path, remedy)
        return ModelTuples(
            document["model"],
            tuple(TupleRecord.from_document(record) for record in document["tuples"]),
            tuple((index, where, kind) for index, where, kind in document["calls"]),
            document["parameters"],
            document["torch_version"],
            ModelDefinition.from_json(document["definition"]) if document["definition"] else None,
            document["extraction_s"],
            document["refusal"],
        )
    except OpcostError:
        raise
    except Exception as error:
        raise OpcostError(
            f"{path} is not an opcost extraction ({type(error).__name__}: {error}): {remedy}"
        ) from error


def refusals(models: Iterable[ModelTuples]) -> dict[str, str]:
    """Which models could not be extracted, and why not."""
    return {model.model: model.refusal for model in models if model.refusal is not None}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"refused to load {module}.{name}: plain data only")
