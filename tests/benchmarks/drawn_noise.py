"""How many intervals hold the truth, of runs that are drawn from known laws.

python -m tests.benchmarks.drawn_noise

A target has 200 subjects, of which a part has several runs, and the others one, as in a study. All
intervals are those of the pooled run-to-run variation; those of rows are of their own runs alone.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from opcost.noise import Runs, combined, pooled
from opcost.rows.quantities import MEASURED, TIME
from opcost.rows.runs import COLUMNS, result_of
from opcost.statistics import Estimate

USUAL_SD = 0.02
SUBJECTS, SEVERAL, STUDIES = 200, 60, 20
BLOCK_ERROR = 0.003

Draw = Callable[[np.random.Generator, int], np.ndarray]


def _normal(sd: float) -> Draw:
    return lambda generator, runs: sd * generator.standard_normal(runs)


def _unlike(generator: np.random.Generator, runs: int) -> np.ndarray:
    """Subjects whose variances differ, as those of operators do: Student's t over all of them."""
    sd = 0.02 * math.sqrt(4 / generator.chisquare(6))
    return sd * generator.standard_normal(runs)


def _outliers(generator: np.random.Generator, runs: int) -> np.ndarray:
    """One run in twenty takes up to 30 % longer."""
    longer = generator.random(runs) < 0.05
    return 0.01 * generator.standard_normal(runs) + longer * generator.uniform(0, 0.3, runs)


def _modes(generator: np.random.Generator, runs: int) -> np.ndarray:
    """A process is of one of two kinds, 8 % apart; the truth lies between them."""
    return 0.005 * generator.standard_normal(runs) + 0.04 * generator.choice([-1, 1], runs)


LAWS: Mapping[str, Draw] = {
    "quiet, 0.5 %": _normal(0.005),
    "as usual, 2 %": _normal(0.02),
    "busy, 6 %": _normal(0.06),
    "unlike subjects": _unlike,
    "outliers": _outliers,
    "two modes": _modes,
}


def shares_that_hold(law: Draw, runs: int, seed: int = 0) -> tuple[float, float]:
    """The share of intervals that hold the truth: pooled ones, and those of rows alone. Of subjects
    with so many runs, in studies where others have one or several.
    """
    generator = np.random.default_rng(seed)
    held, alone = [], []
    for _ in range(STUDIES):
        counts = [runs] * SEVERAL + [1 if runs > 1 else 3] * (SUBJECTS - SEVERAL)
        subjects = [_runs(generator, law, count) for count in counts]
        variation = pooled(subjects, USUAL_SD)
        for each in subjects[:SEVERAL]:
            for interval, share in ((combined(each, variation), held), (_of_row(each), alone)):
                assert interval is not None
                assert interval.low is not None
                assert interval.high is not None
                share.append(interval.low <= 1 <= interval.high)
    return float(np.mean(held)), float(np.mean(alone))


def _of_row(runs: Runs) -> Estimate | None:
    """The time of a row of a database, of its own runs alone."""
    row = dict.fromkeys([*COLUMNS, *(each.value for each in MEASURED)])
    row |= {TIME.runs: runs.values, TIME.run_errors: runs.block_errors, "flags": []}
    return TIME.read(result_of(row))


def _runs(generator: np.random.Generator, law: Draw, count: int) -> Runs:
    values = np.exp(law(generator, count) + BLOCK_ERROR * generator.standard_normal(count))
    return Runs(values.tolist(), [BLOCK_ERROR] * count)


if __name__ == "__main__":
    print("| law | runs | pooled | of the row alone |\n|---|---|---|---|")
    for name, law in LAWS.items():
        for runs in (1, 2, 4, 8):
            pooled_share, isolated_share = shares_that_hold(law, runs)
            print(f"| {name} | {runs} | {pooled_share:.1%} | {isolated_share:.1%} |")
