"""Rounds after the first: what is measured again, and in which order.

A model has two answers: its estimate and its end-to-end time. For each answer whose 95 % interval
is wider than the study requests, a round repeats the measurements that make up 90 % of its
variance: the end-to-end run, or the operators with the largest (calls x time)^2 x variance of one
run / number of runs. Round 2 does so for every answer, and repeats ten random operators, because
the run-to-run variation of all operators is pooled from the repeated ones. If the study requests a
precision of rows, a round also repeats each operator whose row is wider.

A budget is spent on end-to-end runs first, then on operators in the order of these shares.
"""

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path

from opcost.addresses import Addresses
from opcost.files import read_json, write_json
from opcost.noise import Runs, Variation, pooled
from opcost.planning.plan import (
    Plan,
    Row,
    device_of,
    measured_end_to_end,
    measured_tuples,
    models_on,
)
from opcost.results_folder import MODELS, OPERATORS, all_measurements, series_of
from opcost.rows import records, schemas
from opcost.rows.quantities import TIME
from opcost.rows.runs import distinct, runs_of, undisturbed, usual_sd
from opcost.statistics import student_97_5
from opcost.study import Precision
from opcost.tuples.model_tuples import ModelTuples
from opcost.values import BOOLEAN, TEXT, check_values, list_of, optional
from opcost.values import number as at_least

Subject = tuple[str, str]
"""Kind of measurement, and tuple id or model."""

_SHARE = 0.9

_AT_RANDOM = 10

_RULES = {
    OPERATORS: list_of(TEXT),
    MODELS: list_of(TEXT),
    "is_cut": optional(BOOLEAN),
    "anew": optional(at_least(0)),
}


@dataclass(frozen=True)
class Known:
    """The time of a subject, its number of runs, and the measuring time of a run.

    `half_width` is the relative one of the 95 % interval of a single run, with the run-to-run
    variation of the target; `row_half_width` with that of the subject's own runs, as in its row.
    """

    time_s: float
    runs: int
    half_width: float
    row_half_width: float
    device_time_s: float

    @property
    def square(self) -> float:
        """The square of the relative half-width of the mean over all runs."""
        return self.half_width**2 / self.runs


@dataclass(frozen=True)
class Round:
    """The names of the tuples and models of a round; of these, `new` remain to be measured.

    `needed_s` is their expected measuring time. `is_cut` if the budget left out measurements;
    `anew` is when a run planned the round again for that reason, in seconds since the epoch.
    """

    operators: Sequence[str] = ()
    models: Sequence[str] = ()
    new: Sequence[Subject] = ()
    needed_s: float = 0.0
    is_cut: bool = False
    anew: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.operators or self.models)


def plan_round(
    number: int,
    models: Sequence[ModelTuples],
    known: Mapping[Subject, Known],
    precision: Precision,
    done: Collection[Subject] = (),
    left_s: float = math.inf,
) -> Round:
    """The measurements of round `number`, from 2 on, within `left_s` s of expected measuring time.

    `known` are the subjects with a result from previous rounds; `done` those already measured in
    this round, which stay in it. The rest of the choice depends only on `known`.
    """
    limit = math.inf if precision.models is None else precision.models
    shares: dict[Subject, float] = {}
    for squares in chain.from_iterable(_answers(model, known) for model in models):
        if number == 2 or sum(squares.values()) > limit**2:
            for subject, share in _largest(squares):
                shares[subject] = max(share, shares.get(subject, 0.0))
    if number == 2:  # ids are hashes
        at_random = sorted(each for each in known if each[0] == OPERATORS)[:_AT_RANDOM]
        shares = dict.fromkeys(at_random, 0.0) | shares
    for subject, each in known.items():
        wide = precision.rows is not None and each.row_half_width > precision.rows * each.runs**0.5
        if wide and subject[0] == OPERATORS:
            shares.setdefault(subject, 0.0)
    kept = known.keys() & {*done}
    wanted = sorted(shares.keys() - kept, key=lambda each: (each[0] != MODELS, -shares[each], each))
    needed_s = list(accumulate((known[each].device_time_s for each in wanted), initial=0.0))
    fitting = sum(each <= left_s for each in needed_s[1:])
    chosen = sorted({*kept, *wanted[:fitting]})
    return Round(
        [name for kind, name in chosen if kind == OPERATORS],
        [name for kind, name in chosen if kind == MODELS],
        wanted[:fitting],
        needed_s[fitting],
        fitting < len(wanted),
    )


def _answers(
    model: ModelTuples, known: Mapping[Subject, Known]
) -> Sequence[Mapping[Subject, float]]:
    """The known answers of a model, estimate and end-to-end time: the contribution of each subject
    to the square of the relative half-width.
    """
    found = []
    calls = {(OPERATORS, each.operator_tuple.tuple_id): n for each, n in model.kernels()}
    if calls and calls.keys() <= known.keys():
        times_s = {subject: n * known[subject].time_s for subject, n in calls.items()}
        total_s = sum(times_s.values())
        found.append({each: (s / total_s) ** 2 * known[each].square for each, s in times_s.items()})
    end_to_end = (MODELS, model.model)
    if end_to_end in known:
        found.append({end_to_end: known[end_to_end].square})
    return found


def _largest(squares: Mapping[Subject, float]) -> Iterator[tuple[Subject, float]]:
    """The largest contributions that make up 90 % of the sum, as shares of it."""
    total, found = sum(squares.values()), 0.0
    for subject in sorted(squares, key=lambda each: (-squares[each], each)):
        if found >= _SHARE * total:
            break
        found += squares[subject]
        yield subject, squares[subject] / total


def plan_target_round(addresses: Addresses, target: str, number: int, first: Plan) -> Round:
    """The plan of a round of one target, after the previous rounds have been measured.

    `first` is the present plan of round 1, within the remaining budget. The time that round 1 still
    needs is reserved for it, because a model needs a result of each operator for an estimate.
    Raises OpcostError for a damaged file.
    """
    return _Rounds(addresses, target, models_on(addresses, target), first).plan(number)


def expect_target_rounds(
    addresses: Addresses, target: str, models: Sequence[ModelTuples], first: Plan
) -> list[Round]:
    """What each round after the first repeats at most: as much as if it were the next one, with the
    times that the present plan of round 1 expects. Each round that is measured makes intervals
    narrower, so that the next one repeats less. Raises OpcostError for a damaged file.
    """
    rounds, found, spent_s = _Rounds(addresses, target, models, first), [], 0.0
    for number in range(2, addresses.study.rounds + 1):
        found.append(rounds.plan(number, spent_s, expects_first=True))
        spent_s += found[-1].needed_s
    return found


class _Rounds:
    """The rounds of a target, with all rows measured there, by this study or another."""

    def __init__(
        self, addresses: Addresses, target: str, models: Sequence[ModelTuples], first: Plan
    ) -> None:
        self._study, self._models, self._first = addresses.study, models, first
        conditions = addresses.study.conditions[target].to_json()
        device = {"conditions_json": conditions, "device": device_of(addresses, target)}
        self._sd = usual_sd(device, TIME)
        self._rows: dict[Subject, dict[int, Row]] = {
            **{(OPERATORS, each): {} for each in (*first.known, *first.chosen)},
            **{(MODELS, each.model): {} for each in models if not each.is_operator},
        }
        self._own = list(self._rows)
        for number in range(1, self._study.rounds + 1):
            for row in measured_tuples(addresses.folders[target], number):
                self._rows.setdefault((OPERATORS, row["tuple_id"]), {})[number] = row
            for row in measured_end_to_end(addresses, target, number):
                self._rows.setdefault((MODELS, row["model"]), {})[number] = row

    def plan(self, number: int, spent_s: float = 0.0, expects_first: bool = False) -> Round:
        """Plan a round from the measurements of previous rounds, after others that spend `spent_s`
        of the budget; if it `expects_first`, as if all of round 1 were measured.
        """
        rows = {
            name: distinct([row for n, row in each.items() if n < number and row["status"] == "ok"])
            for name, each in self._rows.items()
        }
        runs = {name: each for name in rows if (each := runs_of(undisturbed(rows[name]), TIME))}
        operators = [each for (kind, _), each in runs.items() if kind == OPERATORS]
        variation = pooled(operators, self._sd)
        if expects_first:
            for name in self._own:
                if 1 not in self._rows[name]:  # a model's time is not needed
                    runs[name] = Runs([self._first.times_s.get(name[1], 1.0)], [None])
        known = {
            name: self._known(name, rows[name], runs[name], variation)
            for name in self._own
            if name in runs
        }
        done = [name for name, each in self._rows.items() if number in each]
        left_s = self._left_s() - spent_s
        return plan_round(number, self._models, known, self._study.precision, done, left_s)

    def _known(self, name: Subject, rows: Sequence[Row], runs: Runs, variation: Variation) -> Known:
        usual_s = self._first.job_s if name[0] == OPERATORS else self._first.model_s
        held_s = [row["device_time_s"] for row in rows if row["device_time_s"]]
        return Known(
            runs.value,
            len(runs.values),
            _of_one_run(runs, variation),
            _of_one_run(runs, pooled([runs], self._sd)),
            statistics.fmean(held_s or [usual_s]),
        )

    def _left_s(self) -> float:
        """The budget that is left for rounds after the first."""
        budget_s, first = self._study.max_device_time_s, self._first
        return math.inf if budget_s is None else budget_s - first.needed_s - first.beyond_s()


def _of_one_run(runs: Runs, variation: Variation) -> float:
    """The relative half-width of the 95 % interval of a single run."""
    return student_97_5(variation.degrees_of_freedom) * math.sqrt(variation.of_one(runs))


def with_rest_of_budget(addresses: Addresses, target: str, began_s: float) -> Addresses:
    """The study with the budget that is left after the measurements of a run, which began at a time
    in seconds since the epoch. Earlier measurements are free.
    """
    budget_s = addresses.study.max_device_time_s
    if budget_s is None:
        return addresses
    spent_s = 0.0
    for path in all_measurements(addresses.folders[target]):
        if path.stat().st_mtime >= began_s:
            schema = schemas.MODEL if series_of(path).kind == MODELS else schemas.OPERATOR
            [row] = records.read(path, schema, ["device_time_s"]).to_pylist()
            spent_s += row["device_time_s"] or 0.0
    return replace(addresses, study=replace(addresses.study, max_device_time_s=budget_s - spent_s))


def write_round(path: Path, planned: Round) -> None:
    """Write the measurements of a round."""
    write_json(path, {name: getattr(planned, name) for name in _RULES})


def read_round(path: Path) -> Round:
    """The measurements of a round. Raises OpcostError for a damaged file."""
    remedy = f"delete {path}, and run again to plan the round again; measurements are kept"
    document = read_json(path, remedy)
    check_values({key: document.get(key) for key in _RULES}, _RULES, path, remedy)
    return Round(
        document[OPERATORS],
        document[MODELS],
        is_cut=bool(document.get("is_cut")),
        anew=document.get("anew") or 0.0,
    )
