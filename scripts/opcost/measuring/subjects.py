"""The subjects of measurements: operators and models, set up differently and measured alike.

This module is light: a job's parent process describes its subject, and only the child process that
measures it imports PyTorch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from opcost.addresses import definition_address
from opcost.errors import OpcostError
from opcost.launch_modes import EAGER
from opcost.models.definition import ModelDefinition
from opcost.results_folder import MODELS, OPERATORS
from opcost.rows.flags import (
    CALLS_DIFFER,
    COMPILED_PARTS,
    DEGENERATE_VALUES,
    FOOTPRINT_WITHIN_CACHE,
    MODEL_VALUES,
    VALUE_DEPENDENT,
)
from opcost.study import MeasurementSettings
from opcost.tuples.manifest import read_record
from opcost.tuples.model_tuples import ModelTuples, calls_hash, read_extractions
from opcost.tuples.tuple_record import TupleRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from opcost.measuring.station import Station
    from opcost.measuring.timing import Workload
    from opcost.measuring.workload import ModelWorkload
    from opcost.tuples.operator_tuple import OperatorTuple


@dataclass(frozen=True)
class SetUp:
    """A subject that is ready to be timed.

    `columns` describe it; `find_flags`, called after timing, maps flags to whether they hold.
    `model` is the workload of a model run call by call, and `calls` are all its calls.
    """

    workload: "Workload"
    columns: Mapping[str, Any]
    find_flags: Callable[[], Mapping[str, bool]]
    model: "ModelWorkload | None" = None
    calls: "Sequence[OperatorTuple]" = ()


class Subject(ABC):
    """The subject of a row. Messages show `name`; progress lines show `kind` and `description`."""

    kind: str
    name: str
    description: str
    launch_mode = EAGER
    trained = False

    @classmethod
    @abstractmethod
    def named(cls, name: str, tuples: Path, search_path: Path) -> Self:
        """The subject of a file name: a tuple in the manifest `tuples`, or a model with its
        extraction or trace `tuples` and its code below `search_path`. Raises OpcostError.
        """

    @property
    @abstractmethod
    def schema(self) -> "pa.Schema":
        """The schema of the subject's rows."""

    @abstractmethod
    def columns(self) -> dict[str, Any]:
        """The columns that identify the subject."""

    def settings(self, settings: MeasurementSettings) -> MeasurementSettings:
        """The target's settings, adapted to this subject."""
        return settings

    @abstractmethod
    def set_up(self, station: "Station") -> SetUp:
        """Create the workload. An exception becomes a row with that failure."""


class OperatorSubject(Subject):
    """One operator tuple; `search_path` is the folder of the code of a model with its values."""

    kind = "operator"

    def __init__(self, record: TupleRecord, search_path: Path | None = None) -> None:
        self.record, self.search_path = record, search_path
        self.name = f"operator tuple {record.operator_tuple.tuple_id}"
        self.description = str(record.operator_tuple)

    @classmethod
    def named(cls, name: str, tuples: Path, search_path: Path) -> Self:
        """The tuple with an id."""
        return cls(read_record(tuples, name), search_path)

    @property
    def schema(self) -> "pa.Schema":
        """The schema of rows of operators."""
        from opcost.rows import schemas

        return schemas.OPERATOR

    def columns(self) -> dict[str, Any]:
        """The columns that identify the tuple."""
        from opcost.rows import records

        return records.operator_columns(self.record)

    def set_up(self, station: "Station") -> SetUp:
        """Create operand sets for the cache state."""
        from opcost.measuring.operands import degenerate
        from opcost.measuring.tracing import values_in_model
        from opcost.measuring.workload import caches_bytes, operator_workload

        settings, device = station.conditions.measurement, station.device
        model, operator_tuple = settings.operand_values, self.record.operator_tuple
        values = None
        if model is not None and not operator_tuple.in_place:  # it would overwrite them
            values = values_in_model(device, operator_tuple, model, self.search_path)
        cache_state, seed = settings.cache_state, settings.seed
        workload = operator_workload(self.record, device, cache_state, seed, values or ())
        operands = workload.operands
        within = operands.footprint_bytes < caches_bytes(device)
        return SetUp(
            workload,
            {
                "footprint_bytes": operands.footprint_bytes,
                "operand_sets": len(operands.calls),
                "parameters": list(self.record.parameters),
            },
            lambda: {
                FOOTPRINT_WITHIN_CACHE: settings.cache_state == "cold" and within,
                DEGENERATE_VALUES: degenerate(operands.calls[0]),
                VALUE_DEPENDENT: self.record.value_dependent,
                MODEL_VALUES: values is not None
                and any(spec.may_have_zeros for _, spec in operator_tuple.tensors),
            },
        )


class ModelSubject(Subject):
    """A model end to end; `search_path` is the folder of its code.

    Its calls on the device are compared with the `expected` ones.
    """

    kind = "model"

    def __init__(
        self,
        definition: ModelDefinition,
        search_path: Path | None = None,
        expected: ModelTuples | None = None,
    ) -> None:
        self.definition, self.search_path, self.expected = definition, search_path, expected
        self.name = f"model {definition.name}"
        self.trained = definition.trains

    @property
    def description(self) -> str:  # type: ignore[override]  # a plain attribute of operators
        """The name and, unless eager, the launch mode."""
        mode = "" if self.launch_mode == EAGER else f", {self.launch_mode}"
        return f"{self.definition.name}{mode}"

    @classmethod
    def named(cls, name: str, tuples: Path, search_path: Path) -> Self:
        """The model of an address. Raises OpcostError if `tuples` are of another."""
        [found] = read_extractions([tuples])
        definition = found.definition
        if definition is None or definition_address(definition) != name:
            raise OpcostError(f"{tuples} is not of {name}: delete it, and run again")
        return cls(definition, search_path, found)

    @property
    def schema(self) -> "pa.Schema":
        """The schema of rows of models."""
        from opcost.rows import schemas

        return schemas.MODEL

    def columns(self) -> dict[str, Any]:
        """The columns that identify the model."""
        from opcost.rows import records

        return records.model_columns(self.definition) | {"launch_mode": self.launch_mode}

    def settings(self, settings: MeasurementSettings) -> MeasurementSettings:
        """The settings of end-to-end measurements."""
        return settings.of_end_to_end()

    def set_up(self, station: "Station") -> SetUp:
        """Create copies of the model in its launch mode, under supervision of its code."""
        from opcost.measuring.launch import launched
        from opcost.measuring.supervision import Supervision, check_inputs_fit
        from opcost.measuring.workload import model_workload
        from opcost.models.conditions import run_compiled_parts_eagerly
        from opcost.models.construction import build
        from opcost.models.iteration import iteration_of
        from opcost.tuples.replay import tensors_in_tree

        device, definition = station.device, self.definition
        check_inputs_fit(definition, device)
        supervision = Supervision(definition.name, device.torch_device)
        where = device.torch_device
        module = build(definition, self.search_path).to(where)
        supervision.settle()
        run, inputs, _ = iteration_of(definition, module, self.search_path, device=where)
        run_compiled_parts_eagerly()  # code and loss have been imported
        cache_state = station.conditions.measurement.cache_state
        workload = model_workload(run, inputs, device, cache_state)
        executed = supervision.before_timing(workload.output)
        run_compiled_parts_eagerly()  # also parts that forward compiled
        differing = None if self.expected is None else self.expected.differing_calls(executed)

        def find_flags() -> dict[str, bool]:
            output, flags = supervision.after_timing(workload.output)
            finite = all(bool(tensor.isfinite().all()) for tensor in tensors_in_tree(output))
            found = {
                CALLS_DIFFER: bool(differing),
                COMPILED_PARTS: supervision.compiled and self.launch_mode == EAGER,
                DEGENERATE_VALUES: not finite,
            }
            return {**dict.fromkeys(flags, True), **found}

        columns = {
            "footprint_bytes": workload.footprint_bytes,
            "operand_sets": workload.rotation,
            "differing_calls": differing,
            "calls_hash": calls_hash(executed),
        }
        return SetUp(
            launched(workload, device, self.launch_mode),
            columns,
            find_flags,
            workload if self.launch_mode == EAGER else None,
            supervision.calls,
        )


SUBJECTS: Mapping[str, type[Subject]] = {OPERATORS: OperatorSubject, MODELS: ModelSubject}
"""Kind of measurement in the folder of results -> class of its subjects."""
