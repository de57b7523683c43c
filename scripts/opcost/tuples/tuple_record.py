"""Operator tuples with their properties before measurement, and their form in files."""

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

SCHEMA_VERSION = 1
"""Schema version of the files that contain records: the models' tuples, and the manifest."""

RESULTS = "(results)"
"""Among the `parameters` of a tuple: its results are kept for a later phase of a training step, in
memory that has not been used since the last step."""

IN_CORE = "(others in core)"
"""Among the `parameters` of a tuple: its other arguments were used just before, and are in the
core's private caches as far as they fit, as in an optimizer."""

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
    """An operator tuple with its properties before measurement.

    `flops` is None if unknown. `launches_kernel` is False for views. `parameters` names the
    arguments that come from memory in every call: weights or buffers of the models, and in training
    tensors last used in an earlier phase; the other tensors are activations. It may contain RESULTS
    and IN_CORE. `value_dependent` is True if sizes depend on values, so that another seed or image
    leads to another tuple.
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
        """The record that `to_document` wrote; `source` is its origin.

        Raises OpcostError, ending with the remedy, for impossible values.
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
        """The record without parameters that are not in `parameters`."""
        common = tuple(name for name in self.parameters if name in parameters)
        return replace(self, parameters=common)

    def joined(self, other: Self) -> Self:
        """The record of a tuple from two calls, in any order. If the sizes of results depend on
        values and differ, the larger ones are kept.
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
    """Raise OpcostError if a record has an impossible value; does not check its tensors."""
    if not isinstance(document, Mapping):
        raise OpcostError(f"{source} is {shown(document)}; allowed is an object: {remedy}")
    check_values(document, _RULES, source, remedy)


def check_version(document: Any, path: Path, remedy: str) -> None:
    """Raise OpcostError, with the remedy, for a document of another schema version."""
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise OpcostError(
            f"{path} has schema version {shown(version)}; this opcost reads {SCHEMA_VERSION}: "
            f"{remedy}"
        )
