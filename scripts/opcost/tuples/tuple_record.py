"""An operator tuple with what is known of it before any measurement, as files of opcost hold it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from opcost.errors import OpcostError
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.values import (
    BOOLEAN,
    OBJECT,
    PRINTABLE,
    TEXT,
    check_values,
    list_of,
    optional,
    shown,
    whole_number,
)

SCHEMA_VERSION = 3
"""Of the files that hold such records: the models' tuples, and the manifest."""

_COUNT = whole_number(0, 2**63 - 1)
_RULES = {
    "canonical_json": TEXT,
    "outputs": list_of(OBJECT),
    "launches_kernel": BOOLEAN,
    "flops": optional(_COUNT),
    "bytes": _COUNT,
    "parameters": list_of(PRINTABLE),
    "value_dependent": BOOLEAN,
}


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
    def from_document(
        cls, document: Mapping[str, Any], source: object = "a tuple", remedy: str = "extract it"
    ) -> Self:
        """The record that `to_document` wrote; `source` is where it comes from.

        Raises OpcostError, which ends with the remedy, for what no tuple is like.
        """
        check_record(document, source, remedy)
        try:
            operator_tuple = OperatorTuple.from_json(document["canonical_json"])
            outputs = tuple(TensorSpec.from_document(spec) for spec in document["outputs"])
        except (OpcostError, ValueError, KeyError) as error:
            raise OpcostError(f"{source}: {error}: {remedy}") from error
        return cls(
            operator_tuple,
            outputs,
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


def check_record(document: Any, source: object, remedy: str) -> None:
    """Raises OpcostError if a record has a value that cannot be; tensors are not looked into."""
    if not isinstance(document, Mapping):
        raise OpcostError(f"{source} is {shown(document)}; allowed is an object: {remedy}")
    check_values(document, _RULES, source, remedy)


def check_version(document: Any, path: Path, remedy: str) -> None:
    """Raises OpcostError for a document of another version of these files, with the remedy."""
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise OpcostError(
            f"{path} has schema version {shown(version)}; this opcost reads {SCHEMA_VERSION}: "
            f"{remedy}"
        )
