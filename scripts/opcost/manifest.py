"""The files between extraction and measurement: a pickle for each model, one manifest over all.

Both hold plain data only. A pickle is read by an unpickler that refuses every global, so that one
from a stranger runs nothing.
"""

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, Self

from opcost.definition import ModelDefinition
from opcost.errors import OpcostError, closest
from opcost.files import replacing
from opcost.operator_tuple import OperatorTuple, TensorSpec, short_name

SCHEMA_VERSION = 3


@dataclass(frozen=True)
class TupleRecord:
    """An operator tuple with what is known of it before any measurement.

    `flops` is None where they cannot be counted. `launches_kernel` is False for views.
    `parameters` names the arguments that the models hold themselves (weights and buffers) in every
    call; the other tensors are activations. `value_dependent` is True where the sizes follow from
    values, so that another seed, or another image, has another tuple in its place.
    """

    operator_tuple: OperatorTuple
    outputs: tuple[TensorSpec, ...]
    launches_kernel: bool
    flops: int | None
    bytes: int
    parameters: tuple[str, ...] = ()
    value_dependent: bool = False

    def to_document(self) -> dict[str, Any]:
        """The record as JSON data."""
        return {
            "canonical_json": self.operator_tuple.canonical_json,
            "outputs": [spec.to_document() for spec in self.outputs],
            "launches_kernel": self.launches_kernel,
            "flops": self.flops,
            "bytes": self.bytes,
            "parameters": list(self.parameters),
            "value_dependent": self.value_dependent,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The record that `to_document` wrote."""
        return cls(
            OperatorTuple.from_json(document["canonical_json"]),
            tuple(TensorSpec.from_document(spec) for spec in document["outputs"]),
            document["launches_kernel"],
            document["flops"],
            document["bytes"],
            tuple(document["parameters"]),
            document["value_dependent"],
        )

    def holding(self, parameters: Iterable[str]) -> Self:
        """The record with the parameters that it has in common with those of another call."""
        common = tuple(name for name in self.parameters if name in parameters)
        return replace(self, parameters=common)

    def joined(self, other: Self) -> Self:
        """What is known of the tuple from two calls, in whatever order.

        Results whose sizes depend on values may differ: the larger ones stand for all.
        """
        larger = max(self, other, key=lambda record: record._results)
        dependent = self.value_dependent and other.value_dependent
        return replace(
            larger.holding(self.parameters).holding(other.parameters), value_dependent=dependent
        )

    @property
    def _results(self) -> tuple[int, str]:
        return sum(spec.elements for spec in self.outputs), str(self.outputs)


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
        _check_version(document, path, remedy)
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


def collect(
    models: Iterable[ModelTuples], operators: Sequence[str] | None
) -> dict[str, dict[str, Any]]:
    """The manifest: every unique tuple over all models, by tuple id.

    Each entry is a `TupleRecord` document with `excluded`: None if the tuple is to be benchmarked,
    else "view" or "filtered" (not among `operators`, where None means all). Raises OpcostError for
    a name in `operators` that is no operator.
    """
    records: dict[str, TupleRecord] = {}
    for model in models:
        for record in model.tuples:
            tuple_id = record.operator_tuple.tuple_id
            records[tuple_id] = records.get(tuple_id, record).joined(record)
    selected = None if operators is None else _check_operators(operators, records.values())
    return {
        tuple_id: {**record.to_document(), "excluded": _excluded(record, selected)}
        for tuple_id, record in sorted(records.items())
    }


def refusals(models: Iterable[ModelTuples]) -> dict[str, str]:
    """Which models could not be extracted, and why not."""
    return {model.model: model.refusal for model in models if model.refusal is not None}


def write_manifest(
    path: Path, manifest: Mapping[str, Mapping[str, Any]], refused: Iterable[str] = ()
) -> None:
    """Write the manifest as JSON, one tuple a line, the same bytes for the same tuples.

    `refused` are the names of the models that could not be extracted.
    """
    lines = [
        f"{json.dumps(tuple_id)}: {json.dumps(entry, sort_keys=True)}"
        for tuple_id, entry in sorted(manifest.items())
    ]
    body = ",\n".join(lines)
    head = f'"schema_version": {SCHEMA_VERSION}, "refused": {json.dumps(sorted(refused))}'
    with replacing(path) as temporary:
        temporary.write_text(f'{{{head}, "tuples": {{\n{body}\n}}}}\n', encoding="utf-8")


def read_manifest(path: Path) -> dict[str, dict[str, Any]]:
    """Read the manifest. Raises OpcostError for a damaged or foreign file."""
    return _read_manifest(path)["tuples"]


def read_refused(path: Path) -> set[str]:
    """The models that could not be extracted, as the manifest has them. Raises OpcostError."""
    return set(_read_manifest(path)["refused"])


def _read_manifest(path: Path) -> dict[str, Any]:
    remedy = f"delete {path} and run again"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OpcostError(f"{path} is not valid JSON ({error}): {remedy}") from error
    _check_version(document, path, remedy)
    return document


def read_record(path: Path, tuple_id: str) -> TupleRecord:
    """One tuple of the manifest, by its line: a job does not parse thousands of others.

    Raises OpcostError for a damaged or foreign file, or one without the tuple.
    """
    remedy = f"delete {path} and run again"
    key = f"{json.dumps(tuple_id)}: "
    try:
        with path.open(encoding="utf-8") as lines:
            _check_version(json.loads(f"{next(lines, '')}}}}}"), path, remedy)
            for line in lines:
                if line.startswith(key):
                    entry = json.loads(line.removeprefix(key).rstrip(",\n"))
                    return TupleRecord.from_document(entry)
    except (ValueError, KeyError) as error:
        raise OpcostError(f"{path} is not a manifest ({error!r}): {remedy}") from error
    raise OpcostError(f"{path} has no tuple {tuple_id}: {remedy}")


def to_benchmark(manifest: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The ids of the tuples that are benchmarked."""
    return [tuple_id for tuple_id, entry in manifest.items() if entry["excluded"] is None]


def _excluded(record: TupleRecord, selected: set[str] | None) -> str | None:
    if not record.launches_kernel:
        return "view"
    operator = record.operator_tuple.operator
    if selected is not None and selected.isdisjoint({operator, short_name(operator)}):
        return "filtered"
    return None


def _check_operators(operators: Sequence[str], records: Iterable[TupleRecord]) -> set[str]:
    executed = {record.operator_tuple.operator for record in records}
    names = executed | {short_name(operator) for operator in executed}
    unknown = [name for name in operators if name not in names and not _exists(name)]
    if unknown:
        hints = [f"{name!r} is no operator. {closest(name, names)}".strip() for name in unknown]
        executed_names = ", ".join(sorted({short_name(operator) for operator in executed}))
        raise OpcostError(
            f"operators: {' '.join(hints)}\n  The models of this study execute: {executed_names}"
        )
    return set(operators)


def _exists(name: str) -> bool:
    """Whether torch has an operator of that name, though no model of the study executes it."""
    import torch  # only for a name that no model executes

    parts = name.split(".")
    packet = parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[0]
    return hasattr(torch.ops.aten, packet)


def _check_version(document: Any, path: Path, remedy: str) -> None:
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise OpcostError(
            f"{path} has schema version {version}; this opcost reads {SCHEMA_VERSION}: {remedy}"
        )


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"refused to load {module}.{name}: plain data only")
