"""Plan a round: what, measured once more, makes the study's answers most precise for a second of
device time.

The answers are each model's time, as a sum over operators and as a whole, and, if the study states
a precision of rows, the row of each tuple. An answer's variance is the sum over its subjects of

    (share of the answer)^2 x variance of one execution / number of executions

so that a subject is worth measuring once more for what the last factor then saves in all answers
that are not yet precise enough. Subjects that contribute next to nothing are left out, however far
an answer is from its precision. A round measures each subject at most once.
"""

# ASSUME that executions of a target scatter as `_ASSUMED` until some subjects have several.

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from opcost.executions import (
    MIN_SUBJECTS,
    Executions,
    Scatter,
    scatter_of,
    speeds_beside,
    variance_of_one,
)
from opcost.results_folder import MODELS, OPERATORS
from opcost.statistics import NORMAL_97_5
from opcost.study import Precision
from opcost.tuples.model_tuples import ModelTuples

Subject = tuple[str, str]
"""Kind of measurement, and tuple id or model."""

_ASSUMED = Scatter(0.03, 6.0)
_NEARLY_ALL = 0.95
"""Subjects that explain the rest of an answer's variance are not measured again for it."""

_FOR_SCATTER = MIN_SUBJECTS + 4
"""Tuples that round 2 measures whatever they contribute, so that the scatter is known."""


@dataclass(frozen=True)
class Known:
    """What is known of a subject: its executions, the device time that one takes, and how many
    further ones are expected.
    """

    executions: Executions
    device_time_s: float
    expected: int = 0


@dataclass(frozen=True)
class Round:
    """The names of the tuples and models of a round; of these, `new` remain to be measured.

    `needed_s` is their expected device time. `half_widths` are those expected of the models, each
    the wider one of sum and whole, without the error of call overhead; if nothing tells it yet, for
    executions that scatter by `assumed_sd`. `is_cut` says that the budget of device time left out
    measurements; `anew` when a run planned it once more for that, in seconds since the epoch.
    """

    operators: Sequence[str] = ()
    models: Sequence[str] = ()
    new: Collection[Subject] = ()
    needed_s: float = 0.0
    half_widths: Mapping[str, float] = field(default_factory=dict)
    is_cut: bool = False
    assumed_sd: float | None = None
    anew: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.operators or self.models)


def plan_round(
    number: int,
    models: Sequence[ModelTuples],
    known: Mapping[Subject, Known],
    precision: Precision,
    done: Collection[Subject] = (),
    left_s: float = float("inf"),
    scatter: Scatter | None = None,
) -> Round:
    """What to measure in round `number`, from 2 on, within `left_s` s of device time, as expected.

    `known` are the subjects with a result from the rounds before; `done` those already measured in
    this round. Planned once more from the same, a round that is done stays as it is: so what is
    chosen depends on these alone. The widths that are expected after it follow the `scatter` that
    the target is known to have, from whatever was measured there.
    """
    [planned] = expect_rounds([number], models, known, precision, done, left_s, scatter)
    return planned


def expect_rounds(
    numbers: Sequence[int],
    models: Sequence[ModelTuples],
    known: Mapping[Subject, Known],
    precision: Precision,
    done: Collection[Subject] = (),
    left_s: float = float("inf"),
    scatter: Scatter | None = None,
) -> list[Round]:
    """What to measure in these rounds, as `plan_round`, if executions scatter as is known now."""
    answers = _Answers(models, known, precision, scatter)
    found = []
    for number in numbers:
        planned = _next_round(number, answers, known, done, left_s)
        done, left_s = (), left_s - planned.needed_s
        found.append(planned)
    return found


def _next_round(
    number: int,
    answers: "_Answers",
    known: Mapping[Subject, Known],
    done: Collection[Subject],
    left_s: float,
) -> Round:
    chosen = [each for each in done if each in known]
    for subject in chosen:
        answers.measure(subject)
    new: list[Subject] = []
    needed_s, is_cut = 0.0, False

    def choose(subject: Subject) -> bool:
        nonlocal needed_s, is_cut
        cost_s = known[subject].device_time_s
        if needed_s + cost_s > left_s:
            is_cut = True
            return False
        needed_s += cost_s
        new.append(subject)
        answers.measure(subject)
        return True

    if number == 2:
        wholes = [subject for subject in known if subject[0] == MODELS]
        tuples = sorted(subject for subject in known if subject[0] == OPERATORS)
        for subject in [*wholes, *tuples[:_FOR_SCATTER]]:
            if subject not in done and not choose(subject):
                break
    while (best := answers.most_worth({*chosen, *new})) is not None:
        if not choose(best):
            break
    every = sorted({*chosen, *new})
    return Round(
        [name for kind, name in every if kind == OPERATORS],
        [name for kind, name in every if kind == MODELS],
        new,
        needed_s,
        answers.half_widths(),
        is_cut,
        answers.assumed_sd,
    )


class _Answers:
    """The variances of all answers, while subjects are chosen."""

    def __init__(
        self,
        models: Sequence[ModelTuples],
        known: Mapping[Subject, Known],
        precision: Precision,
        of_target: Scatter | None,
    ) -> None:
        self._subjects = list(known)
        self._index = {subject: number for number, subject in enumerate(self._subjects)}
        self._names: list[str] = []
        shares = []
        for model in models:
            for answer in (self._sum(model, known), self._whole(model)):
                if answer is not None:
                    self._names.append(model.model)
                    shares.append(answer)
        self._weights = np.array(shares).reshape(len(shares), len(self._subjects)) ** 2
        found = scatter_of([each.executions for each in known.values()])
        scatter = found or _ASSUMED
        self.assumed_sd = None if found or of_target else _ASSUMED.sd
        self._variance = _variances(known, scatter)
        self._expected = _variances(known, of_target or scatter)
        self._count = np.array(
            [float(len(each.executions.values) + each.expected) for each in known.values()]
        )
        self._cost_s = np.array([each.device_time_s for each in known.values()])
        self._matters = _largest_parts(self._weights * self._variance / self._count)
        self._is_row = np.array([kind == OPERATORS for kind, _ in self._subjects], bool)
        self._limits = [
            np.inf if each is None else (each / NORMAL_97_5) ** 2
            for each in (precision.models, precision.rows)
        ]

    def _sum(self, model: ModelTuples, known: Mapping[Subject, Known]) -> list[float] | None:
        """Each subject's share of the sum over operators; None if one is unknown."""
        calls = {(OPERATORS, record.operator_tuple.tuple_id): n for record, n in model.kernels()}
        if not calls or not calls.keys() <= known.keys():
            return None
        times_s = {each: n * known[each].executions.values[0] for each, n in calls.items()}
        total_s = sum(times_s.values())
        return [times_s.get(subject, 0.0) / total_s for subject in self._subjects]

    def _whole(self, model: ModelTuples) -> list[float] | None:
        subject = (MODELS, model.model)
        if subject not in self._index:
            return None
        return [float(each == subject) for each in self._subjects]

    def most_worth(self, others: Collection[Subject]) -> Subject | None:
        """The subject, not among `others`, that saves most for its time; None if it is enough."""
        saved = self._variance / self._count - self._variance / (self._count + 1)
        of_models, of_rows = self._limits
        vague = self._weights @ (self._variance / self._count) > of_models
        worth = (self._weights * self._matters)[vague].sum(axis=0) / of_models * saved
        rows = self._is_row & (self._variance / self._count > of_rows)
        worth = (worth + np.where(rows, saved / of_rows, 0.0)) / self._cost_s
        worth[[self._index[each] for each in others]] = 0.0
        best = int(np.argmax(worth)) if len(worth) else 0
        return self._subjects[best] if len(worth) and worth[best] > 0 else None

    def measure(self, subject: Subject) -> None:
        """Expect one more execution of a subject."""
        self._count[self._index[subject]] += 1

    def half_widths(self) -> dict[str, float]:
        """Model -> the expected half-width of its answers, the wider one."""
        found: dict[str, float] = {}
        variances = self._weights @ (self._expected / self._count)
        for name, variance in zip(self._names, variances, strict=True):
            half_width = NORMAL_97_5 * float(np.sqrt(variance))
            found[name] = max(found.get(name, 0.0), half_width)
        return found


def _largest_parts(
    parts: "np.ndarray[tuple[int, int], np.dtype[np.float64]]",
) -> "np.ndarray[tuple[int, int], np.dtype[np.bool_]]":
    """Which parts of each sum are needed to make up nearly all of it."""
    order = np.argsort(-parts, axis=1)
    before = np.cumsum(np.take_along_axis(parts, order, axis=1), axis=1)
    before -= np.take_along_axis(parts, order, axis=1)
    found = np.zeros(parts.shape, bool)
    few = before < _NEARLY_ALL * parts.sum(axis=1, keepdims=True)
    np.put_along_axis(found, order, few, axis=1)
    return found


def _variances(
    known: Mapping[Subject, Known], scatter: Scatter
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """The expected variance of one execution of each subject."""
    of_speeds = _variances_of_speeds(known, scatter)
    return np.array(
        [_variance(each, scatter) + of_speeds.get(name, 0.0) for name, each in known.items()]
    )


def _variance(known: Known, scatter: Scatter) -> float:
    variance, degrees = variance_of_one(known.executions, scatter)
    return variance if degrees is None else variance * degrees / max(degrees - 2, 1.0)


def _variances_of_speeds(
    known: Mapping[Subject, Known], scatter: Scatter
) -> Mapping[Subject, float]:
    """What one execution of each whole model leaves unknown of the speed that is usual beside it,
    as a variance of its time.
    """
    law = scatter.speed_law
    executions = {name: each.executions for name, each in known.items() if name[0] == MODELS}
    speeds = {name: [each for each in of.speeds if each] for name, of in executions.items()}
    beside = speeds_beside(list(speeds.values()), law.speed_sd) if law else None
    if law is None or beside is None:
        return {}
    errors = {name: law.beside(of, beside).usual_speed_error for name, of in speeds.items()}
    return {
        name: (law.exponent * errors[name]) ** 2 * len(of.values) for name, of in executions.items()
    }
