"""The tuples and calls of one model, and their file: a pickle of plain data.

The unpickler refuses every global, so that an untrusted file cannot run code.
"""

import hashlib
import io
import itertools
import json
import pickle
import pickletools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from opcost.errors import OpcostError
from opcost.files import content_of, replacing
from opcost.models.definition import FORWARD, PHASES, InputSpec, ModelDefinition, usual_dtype
from opcost.results_folder import model_of
from opcost.tuples.model_memory import Lifetime, ModelMemory
from opcost.tuples.operator_tuple import OperatorTuple
from opcost.tuples.tuple_record import SCHEMA_VERSION, TupleRecord, check_version
from opcost.tuples.weights import Weight, WeightGroup
from opcost.values import (
    OBJECT,
    PRINTABLE,
    STRING,
    TEXT,
    check_values,
    list_like,
    list_of,
    number,
    one_of,
    optional,
    whole_number,
)

_COUNT = whole_number(0, 2**63 - 1)
_PLAIN = {
    "model": PRINTABLE,
    "parameters": optional(_COUNT),
    "torch_version": PRINTABLE,
    "extraction_s": optional(number(0)),
    "refusal": optional(TEXT),
    "device_name": optional(PRINTABLE),
    "not_recorded": optional(TEXT),
    "activation_peak_bytes": optional(_COUNT),
}
"""Fields that a file has as they are."""

_RULES = {
    **_PLAIN,
    "tuples": list_of(OBJECT),
    "definition": optional(TEXT),
    "phases": optional(list_of(one_of(*PHASES))),
    "memory": optional(OBJECT),
    "dtypes": list_of(STRING),
    "weights": optional(list_of(list_like(list_of(list_like(STRING, _COUNT)), _COUNT))),
    "module_parameters": optional(list_of(list_like(STRING, _COUNT))),
    "own_parameters": optional(list_of(list_like(STRING, _COUNT))),
}


class ModelCall(NamedTuple):
    """A call of a model: the position of its tuple, and its place (places.py)."""

    position: int
    module_path: str
    module_class: str
    phase: str = FORWARD


@dataclass(frozen=True)
class ModelTuples:
    """The distinct tuples of one model, and its calls in order.

    `refusal` is the reason why a model of the zoo could not be extracted; it then has no tuples,
    calls and number of parameters. `memory` is that of an iteration, None in older files, and
    `activation_peak_bytes` the most bytes of activations that live at once. `weights`
    are the model's weights by the calls that use them;
    None for a training step. `module_parameters` is the number of parameters of each module with
    its submodules, `own_parameters` without; None for a refused model. `dtypes` are those of the
    parameters, or else of the buffers, in order.

    Calls traced on a device have its `device_name`. `not_recorded` is the reason why that failed;
    the calls are then the extracted ones. `address` is the name of the file that was read, which
    identifies the model's traces.
    """

    model: str
    tuples: tuple[TupleRecord, ...]
    calls: tuple[ModelCall, ...]
    parameters: int | None
    torch_version: str
    definition: ModelDefinition | None = None
    extraction_s: float | None = None
    refusal: str | None = None
    device_name: str | None = None
    not_recorded: str | None = None
    activation_peak_bytes: int | None = None
    memory: ModelMemory | None = None
    weights: tuple[WeightGroup, ...] | None = None
    module_parameters: Mapping[str, int] | None = None
    dtypes: tuple[str, ...] = ()
    own_parameters: Mapping[str, int] | None = None
    address: str = field(default="", compare=False)

    @property
    def precision(self) -> str:
        """The dtypes of the parameters and of autocast."""
        given = self.definition or ModelDefinition("", ())
        dtypes = ", ".join(self.dtypes) or given.dtype or "float32"
        return f"{dtypes}, autocast {given.autocast}" if given.autocast else dtypes

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """The inputs, with dtypes unless all parameters have the same one."""
        if self.definition is None:
            return ()
        alike = self.dtypes in ((), (usual_dtype(self.dtypes),))
        return (self.definition if alike else self.definition.stating(self.dtypes)).inputs

    @property
    def is_operator(self) -> bool:
        """Whether it is an isolated operator, which is not measured end to end."""
        return self.definition is not None and self.definition.is_operator

    @property
    def trains(self) -> bool:
        """Whether an iteration is a training step."""
        return self.definition is not None and self.definition.trains

    @cached_property
    def by_id(self) -> dict[str, TupleRecord]:
        """The distinct tuples by tuple id."""
        return {record.operator_tuple.tuple_id: record for record in self.tuples}

    @cached_property
    def first_of_module(self) -> list[bool]:
        """Whether each call is the first of consecutive calls in its module; further ones are
        functions that the module's `forward` calls.
        """
        paths = [None, *(call.module_path for call in self.calls)]
        return [path != before for before, path in itertools.pairwise(paths)]

    def call_counts(self) -> dict[str, int]:
        """The number of calls of each tuple, by tuple id."""
        counts = [0] * len(self.tuples)
        for call in self.calls:
            counts[call.position] += 1
        return dict(zip(self.by_id, counts, strict=True))

    def kernels(self) -> list[tuple[TupleRecord, int]]:
        """The tuples that launch kernels, each with its number of calls."""
        counts = self.call_counts().values()
        return [pair for pair in zip(self.tuples, counts, strict=True) if pair[0].launches_kernel]

    @property
    def weights_read_again(self) -> float | None:
        """The fraction of weight bytes read by calls that earlier calls of the pass have read,
        without tables of which calls read entries. None if unknown.
        """
        if self.weights is None:
            return None
        read = sum(
            count * spec.bytes
            for record, count in self.kernels()
            for name, spec in record.operator_tuple.tensors
            if name in record.parameters and spec.bytes <= record.bytes
        )
        different = sum(group.bytes for group in self.weights)
        return max(0.0, 1 - different / read) if read else 0.0

    def launched(self) -> dict[OperatorTuple, int]:
        """The number of calls of each tuple that launches a kernel."""
        return {record.operator_tuple: count for record, count in self.kernels()}

    def differing_calls(self, launched: Mapping[OperatorTuple, int]) -> list[str]:
        """The calls by which a device that launched these kernels differs: +more, -fewer of each.

        Views are excluded: they move no data, so their strides are irrelevant.
        """
        extracted = self.launched()
        more = {
            each: launched.get(each, 0) - extracted.get(each, 0) for each in [*extracted, *launched]
        }
        return [f"{count:+} {each}" for each, count in more.items() if count]


def check_extracted(model: Any) -> None:
    """Raise OpcostError for anything that is not a model's tuples, such as a module or a name."""
    if not isinstance(model, ModelTuples):
        raise OpcostError(
            f"the model is of type {type(model).__name__}: give its extracted tuples, such as "
            "extract_module_tuples(module, [x], 'name')"
        )


def calls_hash(launched: Mapping[OperatorTuple, int]) -> str:
    """16 hex digits that change with the kernels that a model launches and their numbers."""
    counts = sorted((each.tuple_id, count) for each, count in launched.items())
    return hashlib.sha256(json.dumps(counts).encode()).hexdigest()[:16]


def total_flops(calls: Iterable[tuple[TupleRecord, int]]) -> int | None:
    """FLOPs of tuples times their numbers of calls; None if those of one tuple are unknown."""
    total = 0
    for record, count in calls:
        if record.flops is None:
            return None
        total += count * record.flops
    return total


def to_document(tuples: ModelTuples) -> dict[str, Any]:
    """A model's tuples as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        **{name: getattr(tuples, name) for name in _PLAIN},
        "tuples": [record.to_document() for record in tuples.tuples],
        "calls": [list(call[:3]) for call in tuples.calls],
        "phases": [call.phase for call in tuples.calls] if tuples.trains else None,
        "definition": tuples.definition.to_json() if tuples.definition else None,
        "memory": tuples.memory
        and {
            "lifetimes": [list(each) for each in tuples.memory.lifetimes],
            "weight_bytes": [*tuples.memory.weight_bytes.items()],
            "state_bytes": tuples.memory.state_bytes,
        },
        "dtypes": list(tuples.dtypes),
        "weights": None
        if tuples.weights is None
        else [[[list(weight) for weight in each.weights], each.uses] for each in tuples.weights],
        "module_parameters": tuples.module_parameters and [*tuples.module_parameters.items()],
        "own_parameters": tuples.own_parameters and [*tuples.own_parameters.items()],
    }


def write_model_tuples(path: Path, tuples: ModelTuples) -> None:
    """Write a model's tuples as a plain-data pickle, atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(pickle.dumps(to_document(tuples), protocol=4))


def read_model_tuples(path: Path) -> ModelTuples:
    """Read a model's tuples. Raises OpcostError for a damaged or foreign file."""
    remedy = f"delete {path} and run again to extract the model again"
    try:
        return from_document(plain_data(content_of(path)), path, remedy)
    except OpcostError:
        raise
    except Exception as error:
        raise OpcostError(
            f"{path} is not an opcost extraction ({type(error).__name__}: {error}): {remedy}"
        ) from error


def from_document(document: Any, path: Path, remedy: str) -> ModelTuples:
    """The tuples that `to_document` made plain data, from a file. Raises OpcostError for impossible
    values.
    """
    check_version(document, path, remedy)
    document.setdefault("memory", None)  # unknown to older versions
    check_values(document, _RULES, path, remedy)
    tuples = tuple(
        TupleRecord.from_document(record, f"{path}: tuple {number}", remedy)
        for number, record in enumerate(document["tuples"])
    )
    call = list_like(whole_number(0, len(tuples) - 1), STRING, STRING)
    check_values({"calls": document["calls"]}, {"calls": list_of(call)}, path, remedy)
    if len({record.operator_tuple for record in tuples}) < len(tuples):
        raise OpcostError(f"{path} contains a tuple twice: {remedy}")
    definition, weights = document["definition"], document["weights"]
    return ModelTuples(
        **{name: document[name] for name in _PLAIN},
        tuples=tuples,
        calls=_calls(document),
        definition=ModelDefinition.from_json(definition) if definition else None,
        memory=_memory(document["memory"], len(document["calls"]), path, remedy),
        weights=None
        if weights is None
        else tuple(WeightGroup(tuple(itertools.starmap(Weight, of)), uses) for of, uses in weights),
        module_parameters=document["module_parameters"] and dict(document["module_parameters"]),
        dtypes=tuple(document["dtypes"]),
        own_parameters=document["own_parameters"] and dict(document["own_parameters"]),
        address=path.stem,
    )


def read_extractions(paths: Iterable[Path]) -> list[ModelTuples]:
    """The tuples of a study's models, each from the file of its address.

    Raises OpcostError for a missing, damaged or foreign file, or one of another model.
    """
    models = []
    for path in paths:
        if not path.exists():
            raise OpcostError(f"{path} is missing: snakemake --cores 1 {path} extracts it again")
        model = read_model_tuples(path)
        remedy = f"delete {path} and run again to extract the model again"
        if model.model != model_of(path):
            raise OpcostError(
                f"{path} holds the tuples of another model, {model.model!r}: {remedy}"
            )
        if model.definition is None:
            raise OpcostError(f"{path} does not define the model: {remedy}")
        models.append(model)
    return models


def _calls(document: Mapping[str, Any]) -> tuple[ModelCall, ...]:
    """The calls of a file. Raises ValueError unless there is a phase for each call."""
    calls = document["calls"]
    phases = document["phases"] or [FORWARD] * len(calls)
    return tuple(
        ModelCall(position, path, kind, phase)
        for (position, path, kind), phase in zip(calls, phases, strict=True)
    )


def _memory(
    document: Mapping[str, Any] | None, calls: int, path: Path, remedy: str
) -> ModelMemory | None:
    """The memory of a file. Raises OpcostError for a call that is not there."""
    if document is None:
        return None
    call = whole_number(0, max(calls - 1, 0))
    rules = {
        "lifetimes": list_of(list_like(call, call, _COUNT)),
        "weight_bytes": list_of(list_like(STRING, _COUNT)),
        "state_bytes": _COUNT,
    }
    check_values(document, rules, path, remedy)
    lifetimes = tuple(itertools.starmap(Lifetime, document["lifetimes"]))
    return ModelMemory(lifetimes, dict(document["weight_bytes"]), document["state_bytes"])


def named(models: Iterable[ModelTuples], names: Collection[str]) -> list[ModelTuples]:
    """The models that have these names."""
    return [model for model in models if model.model in names]


def refusals(models: Iterable[ModelTuples]) -> dict[str, str]:
    """The models that could not be extracted, with the reason."""
    return {model.model: model.refusal for model in models if model.refusal is not None}


def plain_data(content: bytes) -> Any:
    """Plain data from a pickle, in memory proportional to its size, without running code."""
    for opcode, argument, _ in pickletools.genops(content):
        if "PUT" in opcode.name and isinstance(argument, int) and argument > len(content):
            raise pickle.UnpicklingError(f"refused to remember {argument} values")
    return _PlainUnpickler(io.BytesIO(content)).load()


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"refused to load {module}.{name}: plain data only")
