"""The estimated cost of a model on each target of a database."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from heapq import nlargest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opcost.addresses import definition_address
from opcost.costs.breakdown import Part, breakdown
from opcost.costs.comparison import CONDITIONS, compare
from opcost.costs.completion import Completion, Target, completed
from opcost.costs.estimate import OPERATOR_COLUMNS, ModelEstimate
from opcost.costs.headline import RUNS
from opcost.costs.shares import operator_shares
from opcost.costs.terms import Row, Term, terms_of
from opcost.costs.units import Factors, WorkCost, work_cost
from opcost.databases.collection import is_collection
from opcost.databases.database import read_database, rows_of
from opcost.databases.model_ratios import read_ratios
from opcost.devices.kinds import Kind
from opcost.errors import OpcostError, closest
from opcost.models.definition import ModelDefinition
from opcost.prediction.predictor import COLUMNS as PREDICTED_FROM
from opcost.prediction.predictor import Prediction
from opcost.results_folder import DATABASE, MODELS, measurements, runs_of_subject
from opcost.rows import comparability, records, schemas
from opcost.rows.columns import ANSWER
from opcost.rows.flags import PREDICTED
from opcost.rows.quantities import CALL_TIME, COMPARED, HOST_TIME, PHASE_TIMES, TIME, Quantity
from opcost.rows.runs import noise_of
from opcost.studies import folder_named
from opcost.tuples.model_tuples import ModelTuples, calls_hash, check_extracted
from opcost.tuples.traces import extracted_as

END_TO_END_COLUMNS = tuple(
    dict.fromkeys(
        [
            *ANSWER,
            *("definition_json", "differing_calls", "calls_hash", "started_at"),
            *HOST_TIME.names,
            *("call_tuple_id", *CALL_TIME.names, "in_context_reason"),
            "clocked_time_s",
            *(name for quantity in PHASE_TIMES.values() for name in quantity.names),
            *comparability.COLUMNS,
            *CONDITIONS,
        ]
    )
)
"""The columns of end-to-end rows that an estimate reads."""

OF_OPERATORS = (*OPERATOR_COLUMNS, "conditions_id", "measured_at")
"""The columns of operators that an estimate reads."""

MOST_PREDICTED = 10
"""Of more targets, none is predicted unless it is named: each takes seconds."""

_MOST_OTHERS = 4
_OF_MISSING = ("tuple_id", "description", "calls", "status", "error")


@dataclass(frozen=True)
class Explanation:
    """A model's cost on one target of one database.

    `conditions_id` distinguishes targets of one name in a merged database; it is None in others.
    `elsewhere` are the target's names under other conditions that the database has operators of.
    `completion` has the predictions among the estimate's terms, None without any attempt.
    """

    database: Path
    target: str
    conditions_id: str | None
    estimate: ModelEstimate
    elsewhere: tuple[str, ...] = ()
    completion: Completion | None = None

    @property
    def device_name(self) -> str | None:
        """The device's product name, if any of the tuples was measured."""
        return next((row["device_name"] for row in self.estimate.rows), None)

    @property
    def protocol_version(self) -> int | None:
        """The measurement protocol's, if any of the tuples was measured by one."""
        return next((row["protocol_version"] for row in self.estimate.rows), None)

    @property
    def missing(self) -> list[Term]:
        """The tuples without a measured result: the costliest predictions first, else the most
        often called.
        """
        terms = [term for term in self.estimate.terms if not term.measured]
        return sorted(terms, key=_importance)

    @property
    def calls_unverified(self) -> bool:
        """Whether the calls are those extracted, and the device, a GPU, may make others."""
        rows, model = self.estimate.rows, self.estimate.model
        recorded = model.device_name is not None and model.not_recorded is None
        return bool(rows) and not recorded and not comparability.host_sets_pace(rows[0])

    @property
    def lacks_tf32(self) -> bool:
        """Whether a GPU computed float32 without TF32."""
        rows, precision = self.estimate.rows, self.estimate.model.precision
        on_gpu = bool(rows) and not comparability.host_sets_pace(rows[0])
        return on_gpu and precision == "float32" and rows[0]["tf32"] is False

    @property
    def has_data(self) -> bool:
        """Whether any of the tuples is in the database; a model may have none."""
        return not self.estimate.terms or any(term.row for term in self.estimate.terms)

    @property
    def is_complete(self) -> bool:
        """Whether there is a time."""
        return self.estimate.time is not None

    @property
    def is_predicted(self) -> bool:
        """Whether some operators are predicted."""
        return any(term.predicted for term in self.estimate.terms)

    @property
    def measured_on(self) -> str | None:
        """The day on which the last of the tuples was measured."""
        times = [row["measured_at"] for row in self.estimate.rows if row["measured_at"]]
        return max(times).strftime("%Y-%m-%d") if times else None

    @cached_property
    def end_to_end_conflict(self) -> str | None:
        """Why the end-to-end measurements must not be compared with the estimate, if any."""
        return comparability.conflict([*self.estimate.rows, *self.estimate.end_to_end])

    @cached_property
    def compared(self) -> dict[str, Any]:
        """The row of the comparison, with the end-to-end measurement if one is comparable."""
        of_model = self.estimate
        known = of_model.end_to_end_rows and not self.end_to_end_conflict
        return {
            "model": of_model.model.model,
            "target": self.target,
            **compare(of_model if known else replace(of_model, end_to_end=())),
            RUNS: [row[TIME.value] for row in of_model.timed_rows] if known else [],
        }

    def predictions(self, term: Term) -> Mapping[Quantity, Prediction]:
        """Those of a tuple, if it is predicted."""
        tuple_id = term.record.operator_tuple.tuple_id
        return self.completion.predictions.get(tuple_id, {}) if self.completion else {}

    def work(self, factors: Factors) -> WorkCost:
        """The cost of some samples of the batch. Raises OpcostError if its size is unknown."""
        samples, model = self.compared["batch_size"], self.estimate.model.model
        if samples is None:
            raise OpcostError(f"the batch size of {model} is unknown, as its inputs differ in it")
        return work_cost(self.compared, factors, samples, self.estimate.idle_power_w)

    def operators(self) -> list[dict[str, Any]]:
        """The cost by operator, largest first, views last."""
        return operator_shares(self.estimate.model, self.estimate.addable)

    def parts(self, quantity: Quantity = TIME) -> list[Part]:
        """Where the time or energy goes: parts that add up to all of it."""
        return breakdown(self.compared, self.operators(), quantity)

    def modules(self, depth: int | None = None) -> list[dict[str, Any]]:
        """The cost by module path, cut after `depth` names if given, largest first."""
        return self.estimate.modules(depth)

    def tuples(self) -> list[dict[str, Any]]:
        """A row of `schemas.EXPLANATION` for each tuple that launches a kernel."""
        keys = {
            "model": self.estimate.model.model,
            "target": self.target,
            "conditions_id": self.conditions_id,
            "device_name": self.device_name,
        }
        return [keys | self._tuple_row(term) for term in self.estimate.terms]

    def _tuple_row(self, term: Term) -> dict[str, Any]:
        operator_tuple, row = term.record.operator_tuple, term.row or {}
        why = "not in the database" if term.row is None else None
        if term.refusal:
            why = f"{why}; not predicted: {term.refusal}"
        return {
            "tuple_id": operator_tuple.tuple_id,
            "operator": operator_tuple.operator,
            "description": str(operator_tuple),
            "calls": term.calls,
            "flops": term.record.flops,
            "bytes": term.record.bytes,
            **{name: row[name] for name in ANSWER if row},
            **({} if row else {"status": "missing"}),
            **({"status": PREDICTED, "converged": None} if term.predicted else {}),
            **{
                name: limit
                for quantity, each in self.predictions(term).items()
                for name, limit in quantity.columns(each.cost).items()
            },
            "error": why or row["error"],
            **{
                f"all_calls_{quantity.value}": term.calls * row[quantity.value]
                for quantity in COMPARED
                if row.get(quantity.value) is not None
            },
        }

    def to_document(self) -> dict[str, Any]:
        """The explanation as JSON data."""
        parameters = self.estimate.model.module_parameters or {}
        return {
            "database": str(self.database),
            "measured_on": self.measured_on,
            "target": self.target,
            "conditions_id": self.conditions_id,
            "device_name": self.device_name,
            **self.compared,
            "calls_unverified": self.calls_unverified,
            "predicted_share": self.estimate.predicted_share(),
            "parts": {
                str(quantity): [asdict(part) for part in self.parts(quantity)]
                for quantity in COMPARED
            },
            "operators": self.operators(),
            "modules": [
                {**row, "parameters": parameters.get(row["module_path"])} for row in self.modules()
            ],
            "missing": [
                {
                    **{key: row[key] for key in _OF_MISSING},
                    "nearest": [each["tuple_id"] for each in found.nearest] if found else [],
                    "octaves_beyond": found and found.octaves_beyond,
                }
                for term in self.missing
                for row, found in [(self._tuple_row(term), self.predictions(term).get(TIME))]
            ],
        }


def _importance(term: Term) -> tuple[float, int]:
    """Sorts the most important one first."""
    known_s = term.calls * term.row[TIME.value] if term.known and term.row else 0.0
    return -known_s, -term.calls


def explain(
    model: ModelTuples,
    databases: Sequence[Path],
    targets: Collection[str] = (),
    predict: bool = False,
) -> list[Explanation]:
    """The cost of a model on every target of the databases, or on the `targets` of these names or
    conditions_ids; with what is missing predicted from other tuples, if wanted and possible, and
    if `targets` are named or there are at most MOST_PREDICTED.

    Operators of different targets or conditions are never added up. Raises OpcostError for a file
    that is not a database or holds no row, and for a target that none of them has.
    """
    check_extracted(model)
    found = []
    known: set[str | None] = set()
    tables = _Tables(databases, [*OF_OPERATORS, *(PREDICTED_FROM if predict else ())])
    for path, groups in tables.groups.items():
        known |= {name for group in groups for name in group}
        for target, conditions_id in _chosen(groups, targets):
            table = tables.table(path, conditions_id)
            results = None if conditions_id else _results_of(path)
            named = _as_in_study(model, target, results) if results else model
            explained = _explanation(named, path, table, target, conditions_id)
            if not explained.has_data:
                explained = replace(explained, elsewhere=_elsewhere(model, table, target))
            found.append(explained)
    for target in sorted(set(targets) - known):
        raise OpcostError(
            f"no database has a target {target!r}. {closest(target, filter(None, known))}"
        )
    if predict and (targets or len(found) <= MOST_PREDICTED):
        return [_completed(each, tables) for each in found]
    return found


def explain_in_study(model: ModelTuples, target: str) -> Explanation:
    """The cost of a model of the study on one of its targets, measured there or not."""
    check_extracted(model)
    return _explanation(model, DATABASE, read_database(DATABASE, OF_OPERATORS), target, None)


def _explanation(
    model: ModelTuples,
    path: Path,
    table: pa.Table,
    target: str,
    conditions_id: str | None,
) -> Explanation:
    results = None if conditions_id else _results_of(path)
    here = _there(model, target, results) if results else model
    rows = _rows(table, target, conditions_id, here)
    runs = _end_to_end(model, target, results) if results else []
    ratios = read_ratios(path).get(conditions_id or target, ())
    noise = noise_of(rows_of(table, target, conditions_id), ratios)
    estimate = ModelEstimate(here, terms_of(here, rows, set()), runs, noise)
    return Explanation(path, target, conditions_id, estimate)


_Place = tuple[Path, str, str | None]
"""A database, and a target in it with its conditions_id."""


class _Tables:
    """The rows of databases: of files all at once, of merged folders by conditions_id."""

    def __init__(self, databases: Sequence[Path], columns: Sequence[str]) -> None:
        self._columns = columns
        self._whole: dict[Path, pa.Table] = {}
        self.groups: dict[Path, list[tuple[str, str | None]]] = {}
        for path in databases:
            is_folder = is_collection(path)
            table = read_database(path, ["target", "conditions_id"] if is_folder else columns)
            if not len(table):
                raise OpcostError(f"{path} holds no measurement: name another database, or measure")
            self.groups[path] = _groups(table)
            if not is_folder:
                self._whole[path] = table
        self._rows = lru_cache(_MOST_OTHERS + 1)(self._measured)

    def table(self, path: Path, conditions_id: str | None) -> pa.Table:
        """All rows of a file; of a merged folder, those of one conditions_id."""
        if path in self._whole:
            return self._whole[path]
        return read_database(path, self._columns, conditions_id=conditions_id)

    def measured(self, place: _Place) -> dict[_Place, list[Row]]:
        """The rows with a result of a target, and of those of the same kind of device that have
        most rows.
        """
        if place not in self._kinds:
            return {}
        kind, _ = self._kinds[place]
        others = {each: rows for each, (other, rows) in self._kinds.items() if other == kind}
        others.pop(place)
        chosen = nlargest(_MOST_OTHERS, others, key=lambda each: others[each])
        return {each: self._rows(*each) for each in [place, *chosen]}

    @cached_property
    def _kinds(self) -> dict[_Place, tuple[Kind | None, int]]:
        """The kind of device of each target, and its number of rows."""
        return {
            (path, *group): (comparability.kind_of(rows[:1].to_pylist()[0]), len(rows))
            for path, groups in self.groups.items()
            for group in groups
            for rows in [self._of_group(path, *group, ["conditions_json", "device", "target"])]
        }

    def _of_group(
        self, path: Path, target: str, conditions_id: str | None, columns: Sequence[str]
    ) -> pa.Table:
        if path in self._whole:
            return _of_group(self._whole[path], target, conditions_id)
        return read_database(path, columns, conditions_id=conditions_id)

    def _measured(self, path: Path, target: str, conditions_id: str | None) -> list[Row]:
        rows = self._of_group(path, target, conditions_id, self._columns)
        known: list[Row] = rows.filter(pc.equal(rows["status"], "ok")).to_pylist()
        return known


def _completed(explained: Explanation, tables: _Tables) -> Explanation:
    """With predictions of what was not measured, from the target's own rows and those of others."""
    estimate = explained.estimate
    if all(term.row for term in estimate.terms):
        return explained
    place = (explained.database, explained.target, explained.conditions_id)
    target = Target.among(tables.measured(place), place, estimate.noise.ratios)
    found = completed(estimate.terms, target)
    estimate = replace(estimate, terms=found.terms, prediction_ranges=found.ranges)
    return replace(explained, estimate=estimate, completion=found)


def _results_of(path: Path) -> Path | None:
    """The results folder of the study whose database it is; None for another file."""
    return path.resolve().parent if path.name == DATABASE.name else None


def _groups(table: pa.Table) -> list[tuple[str, str | None]]:
    """The targets of a database; of a merged one, each target with each of its conditions."""
    if "conditions_id" not in table.column_names:
        return [(target, None) for target in table["target"].unique().to_pylist()]
    pairs = table.group_by(["target", "conditions_id"], use_threads=False).aggregate([])
    known = pairs.filter(pc.is_valid(pairs["conditions_id"]))
    return list(zip(known["target"].to_pylist(), known["conditions_id"].to_pylist(), strict=True))


def _chosen(
    groups: Sequence[tuple[str, str | None]], targets: Collection[str]
) -> list[tuple[str, str | None]]:
    """The groups with one of the names; without a name, each target under the conditions that
    tables show, whether the database has rows of it there or not.
    """
    if targets:
        return [group for group in groups if not {*group}.isdisjoint(targets)]
    shown = [group for group in groups if "/" not in group[0]]
    names = dict.fromkeys(target.partition("/")[0] for target, _ in groups)
    return shown + [(name, None) for name in names if name not in dict(shown)]


def _elsewhere(model: ModelTuples, table: pa.Table, target: str) -> tuple[str, ...]:
    """The names of a target under other conditions that have operators of the model."""
    of_model = table.filter(pc.is_in(table["tuple_id"], pa.array(model.by_id, pa.string())))
    names = pc.unique(of_model["target"]).to_pylist()
    return tuple(name for name in names if name.startswith(f"{target}/"))


def _rows(
    table: pa.Table, target: str, conditions_id: str | None, model: ModelTuples
) -> dict[str, Row]:
    """Tuple id -> the model's row in a group."""
    of_group = _of_group(table, target, conditions_id)
    of_model = pc.is_in(of_group["tuple_id"], pa.array(model.by_id, pa.string()))
    return {row["tuple_id"]: row for row in of_group.filter(of_model).to_pylist()}


def _of_group(table: pa.Table, target: str, conditions_id: str | None) -> pa.Table:
    wanted = pc.equal(table["target"], target)
    if conditions_id is not None:
        wanted = pc.and_(wanted, pc.equal(table["conditions_id"], conditions_id))
    return table.filter(wanted)


def _as_in_study(model: ModelTuples, target: str, results: Path) -> ModelTuples:
    """The model as a study names it that measured it on a target; else as it is.

    Its code may be named otherwise there (a config, `torchvision`, another path to its factory): it
    is the same model if it has the same code, arguments and inputs, and launches the same kernels.
    """
    wanted = model.definition
    if wanted is None:
        return model
    own_calls = calls_hash(model.launched())
    paths = measurements(folder_named(target, results), MODELS)
    table = records.read_all(paths, schemas.MODEL, ["definition_json", "calls_hash"])
    alike: dict[bool, ModelDefinition] = {}
    for row in table.to_pylist() if paths else ():
        found = ModelDefinition.from_json(row["definition_json"])
        if replace(found, name=wanted.name) == wanted:
            alike[True] = wanted if found.name == wanted.name else alike.get(True, found)
        elif row["calls_hash"] == own_calls and _without_path(found) == _without_path(wanted):
            alike[False] = found
    named = alike.get(True, alike.get(False, wanted))
    return replace(model, model=named.name, definition=named)


def _without_path(definition: ModelDefinition) -> ModelDefinition:
    """The definition without its name; known code and weights are the same in any folder."""
    if definition.source_digest:
        factory = definition.factory and definition.factory.rpartition(":")[2]
        weights = definition.weights and Path(definition.weights).name
        definition = replace(definition, factory=factory, weights=weights)
    return replace(definition, name="", zoo=False)


def _there(model: ModelTuples, target: str, results: Path) -> ModelTuples:
    """The model with its calls on a target of the study, if they were recorded."""
    if model.definition is None:
        return model
    folder = folder_named(target, results)
    there = extracted_as(model.definition, model.torch_version, folder)
    return there if there and there.device_name else model


def _end_to_end(model: ModelTuples, target: str, results: Path) -> list[Row]:
    """The end-to-end measurements in the results folder of a study's database, if any."""
    if model.definition is None:
        return []
    name = definition_address(model.definition)
    return [
        row
        for path in runs_of_subject(folder_named(target, results), MODELS, name)
        for row in records.read(path, schemas.MODEL, END_TO_END_COLUMNS).to_pylist()
    ]
