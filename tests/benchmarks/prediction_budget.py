"""What do measurements in the order of predictions explain, when only half of the time is there?

    python -m tests.benchmarks.prediction_budget [DATABASE ...]      default: the reference data

A study of the models that a database knows, as if nothing were measured: the most important tuples
come first, and after each tenth of the budget, half of all measuring time, the order is made again
from what is then measured. Orders are

- by the predictor, as with `opcost run --max-device-time` (planning/plan.py);
- by a fit of seconds per call, FLOP and byte (non-negative least squares of relative errors) to the
  rows of the operator, or to all rows while it has few;
- by the true times; and at random.

Explained is the share of the models' time that measured tuples have, the mean over models. The
error of answers is that of the models' sums, with the rest predicted, in per cent.
"""

import argparse
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from opcost.planning.plan import explained_shares, predicted_times_s
from opcost.rows.quantities import TIME
from opcost.text import table
from opcost.tuples.tuple_record import TupleRecord
from scipy.optimize import nnls

from tests.benchmarks.prediction_splits import Row, Target, read_targets, record_of

Records = Mapping[str, TupleRecord]
Rows = Mapping[str, Row]
Times = Mapping[str, float]
_BUDGET, _STEPS = 0.5, 10
_GUESSED_RATES = np.array([5e-6, 1e-11, 1e-10])
_FEW, _SHORTEST_S = 8, 1e-7


class Study:
    """The tuples of a target's models, with their rows."""

    def __init__(self, target: Target) -> None:
        called = {tuple_id for calls in target.calls.values() for tuple_id in calls}
        self.rows = {r["tuple_id"]: r for r in target.rows if r["tuple_id"] in called}
        self.records = {tuple_id: record_of(row) for tuple_id, row in self.rows.items()}
        self.true_s = {tuple_id: row[TIME.value] for tuple_id, row in self.rows.items()}
        self.calls = target.calls
        self.needed_s = math.fsum(row["device_time_s"] for row in self.rows.values())

    def importance(self, times_s: Times) -> dict[str, float]:
        """The share of the models' time of each tuple, by these times."""
        models = [
            SimpleNamespace(call_counts=lambda each=each: each) for each in self.calls.values()
        ]
        return explained_shares(models, self.records, times_s)

    def errors(self, times_s: Times) -> list[float]:
        """|ln(sum by these times / true sum)| of each model, in per cent."""
        sums = [
            [
                sum(n * each[i] for i, n in calls.items() if i in each)
                for each in (times_s, self.true_s)
            ]
            for calls in self.calls.values()
        ]
        return [100 * abs(math.log(estimate / true)) for estimate, true in sums]

    def measured(self, order: Callable[[Rows], Times]) -> Iterator[Rows]:
        """What is measured after each tenth of the budget."""
        known: dict[str, Row] = {}
        spent_s = 0.0
        for step in range(1, _STEPS + 1):
            shares = self.importance(order(known))
            for tuple_id in sorted(shares.keys() - known.keys(), key=lambda i: (-shares[i], i)):
                if spent_s > step / _STEPS * _BUDGET * self.needed_s:
                    break
                known[tuple_id] = self.rows[tuple_id]
                spent_s += self.rows[tuple_id]["device_time_s"]
            yield dict(known)

    def predicted(self, known: Rows) -> Times:
        """Measured, or predicted."""
        return predicted_times_s(self.records, known.values())

    def fitted(self, known: Rows) -> Times:
        """Measured, or by the fit."""
        by_operator: dict[str, list[str]] = defaultdict(list)
        for tuple_id in known:
            by_operator[self.records[tuple_id].operator_tuple.operator].append(tuple_id)
        general = self._rates([*known], _GUESSED_RATES)
        rates = {name: self._rates(ids, general) for name, ids in by_operator.items()}
        return {
            tuple_id: self.true_s[tuple_id]
            if tuple_id in known
            else max(
                _SHORTEST_S, float(_work(each) @ rates.get(each.operator_tuple.operator, general))
            )
            for tuple_id, each in self.records.items()
        }

    def _rates(self, ids: list[str], otherwise: np.ndarray) -> np.ndarray:
        """Seconds per call, FLOP and byte."""
        if len(ids) < _FEW:
            return otherwise
        relative = np.array([_work(self.records[i]) / self.true_s[i] for i in ids])
        scale = relative.max(axis=0)
        scale[scale == 0] = 1
        fitted, _ = nnls(relative / scale, np.ones(len(ids)))
        return fitted / scale

    def at_random(self, known: Rows) -> Times:
        """Times that make the order random."""
        drawn = random.Random(len(known))
        return {tuple_id: drawn.expovariate(1) for tuple_id in self.records}


def _work(record: TupleRecord) -> np.ndarray:
    return np.array([1.0, record.flops or 0, record.bytes])


def lines_of(study: Study) -> Iterator[list[str]]:
    """The cells of a study's table."""
    truth = study.importance(study.true_s)
    orders = (study.predicted, study.fitted, lambda known: study.true_s, study.at_random)
    runs = zip(*map(study.measured, orders), strict=True)
    for step, (by_predictor, by_fit, ideal, at_random) in enumerate(runs, 1):
        known = (by_predictor, by_fit, ideal, at_random)
        shares = [sum(truth[tuple_id] for tuple_id in each) for each in known]
        answers = (
            study.errors(study.predicted(by_predictor)),
            study.errors(study.predicted(by_fit)),
            study.errors(study.fitted(by_fit)),
        )
        errors = [f"{np.median(each):.1f} / {max(each):.0f}" for each in answers]
        cells = [f"{100 * share:.1f}" for share in shares]
        yield [f"{step / _STEPS * _BUDGET:.0%}", *cells, *errors]


def main() -> None:
    """Print the table of each target with models."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("databases", type=Path, nargs="*")
    header = [
        *("measuring time", "explained: predictor", "fit", "true times", "random"),
        *("error, median / worst: predictor", "order of the fit, predicted", "fit"),
    ]
    for target in read_targets(parser.parse_args().databases):
        if target.calls:
            study = Study(target)
            print(f"\n{target.name}: {len(study.rows)} tuples, {study.needed_s:.0f} s")
            print("\n".join(table(header, [*lines_of(study)])), flush=True)


if __name__ == "__main__":
    main()
