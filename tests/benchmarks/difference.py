"""Does `opcost diff` name what changed, and nothing else? On repeated studies and on drawn ones.

Databases of one study that was repeated on one machine, any number of them. For every two: false
alarms, and how many of ten operators are found whose time has been multiplied, in a copy of the
first database and in the second one. Over all of them: the tails of measurements that are repeated.
With --simulate: how often anything is named in as many drawn pairs of studies in which
nothing changed, each row combining executions, for several laws of what runs differ by.

    PYTHONPATH=scripts python -m tests.benchmarks.difference FIRST SECOND... [--simulate 2000]
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
from opcost.difference.changes import changes_of
from opcost.difference.null_distribution import DOUBTFUL_TAIL, SOUND_TAIL
from opcost.difference.pairing import pair_databases
from opcost.executions import Executions, Scatter, combined, in_any_run, scatter_of
from opcost.rows.quantities import SPEED_COLUMNS, TIME
from scipy import stats

LEVEL = 0.05
CHANGES = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0)
CHANGED = 10
DRAWS = 20
LIMITS = ("", "_ci_low", "_ci_high")
EXECUTIONS = 4
SCATTERS = (0.012, 0.04)
TAIL_OF_SCATTER = 6.0
BETWEEN_RUNS_SD, BATCH_ERROR = 0.015, 0.005
TAILS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 30, 100)
LAWS = {
    "nothing": lambda generator, size: np.zeros(size),
    "normal": lambda generator, size: generator.normal(size=size),
    "Student's t, 5": lambda generator, size: generator.standard_t(5, size),
    "Student's t, 4": lambda generator, size: generator.standard_t(4, size),
    "Student's t, 3": lambda generator, size: generator.standard_t(3, size),
    "1 in 20 four times as far": lambda generator, size: (
        generator.normal(size=size) * np.where(generator.random(size) < 0.05, 4, 1)
    ),
}


def named(pairs):
    """The tuple ids that are named, and whether the common factor is."""
    quantity = changes_of(TIME, pairs)
    tests = [quantity, *quantity.changes]
    adjusted = stats.false_discovery_control([each.p for each in tests])
    ids = {
        change.before["tuple_id"]
        for change, p in zip(quantity.changes, adjusted[1:], strict=True)
        if p <= LEVEL
    }
    return ids, adjusted[0] <= LEVEL, quantity


def multiplied(pairs, chosen, factor):
    """The pairs, the second times of the chosen tuples multiplied."""
    return [
        (first, scaled(second, factor) if second["tuple_id"] in chosen else second)
        for first, second in pairs
    ]


def scaled(row, factor):
    return row | {f"time{limit}_s": row[f"time{limit}_s"] * factor for limit in LIMITS}


def found(pairs, factor, generator):
    """Of ten tuples, the mean of how many are found, and of how many others are named."""
    ids = [before["tuple_id"] for before, _ in pairs]
    hits, others = [], []
    for _ in range(DRAWS):
        chosen = set(generator.choice(ids, CHANGED, replace=False))
        names, _, _ = named(multiplied(pairs, chosen, factor))
        hits.append(len(names & chosen))
        others.append(len(names - chosen))
    return np.mean(hits), np.mean(others)


def standardised(quantity):
    """Log ratios over their standard deviation, by doubtful or not; the middle is that of one."""
    result = {}
    for doubtful in (False, True):
        chosen = [each for each in quantity.changes if each.doubtful == doubtful]
        if len(chosen) < 10:
            continue
        logs = np.log([each.deviation for each in chosen])
        result[doubtful] = logs / (np.median(np.abs(logs)) / stats.norm.ppf(0.75))
    return result


def tail(values):
    """The degrees of freedom that fit best, and the least and most that fit (95 %, likelihood)."""
    scales = [stats.norm.ppf(0.75) / stats.t.ppf(0.75, each) for each in TAILS]
    likelihoods = np.array(
        [
            stats.t.logpdf(values, each, scale=scale).sum()
            for each, scale in zip(TAILS, scales, strict=True)
        ]
    )
    fitting = np.array(TAILS)[likelihoods >= likelihoods.max() - stats.chi2.ppf(0.95, 1) / 2]
    return TAILS[int(likelihoods.argmax())], fitting.min(), fitting.max()


def drawn(times_s, scatter, law, generator):
    """Two studies' rows of unchanged tuples, each of several executions; runs differ by the law."""
    of_tuple = scatter.sd * np.sqrt(
        scatter.degrees_of_freedom
        / generator.chisquare(scatter.degrees_of_freedom, (len(times_s), 1))
    )
    for _ in range(2):
        off = BETWEEN_RUNS_SD * law(generator, (len(times_s), 1))
        size = (len(times_s), EXECUTIONS)
        off = off + np.hypot(of_tuple, BATCH_ERROR) * generator.normal(size=size)
        executions = [
            Executions((time_s * np.exp(each)).tolist(), [BATCH_ERROR] * EXECUTIONS)
            for time_s, each in zip(times_s, off, strict=True)
        ]
        found = scatter_of(executions)
        times = [in_any_run(combined(each, found), found.speed_law) for each in executions]
        row = {"flags": [], "executions": EXECUTIONS, "converged": True, TIME.scatter: found.sd}
        row |= dict.fromkeys(SPEED_COLUMNS)
        yield [
            {**row, "tuple_id": str(number), TIME.degrees: each.degrees_of_freedom}
            | TIME.columns(each)
            for number, each in enumerate(times)
        ]


def simulate(pairs, studies, generator):
    """For each law, how often anything is named in pairs of studies in which nothing changed."""
    times_s = [before["time_s"] for before, _ in pairs]
    print(f"| runs differ by | {' | '.join(f'executions by {sd:.1%}' for sd in SCATTERS)} |")
    print("|---" * (1 + len(SCATTERS)) + "|")
    for name, law in LAWS.items():
        cells = []
        for sd in SCATTERS:
            alarms = 0
            for _ in range(studies):
                rows = drawn(times_s, Scatter(sd, TAIL_OF_SCATTER), law, generator)
                names, common, _ = named(list(zip(*rows, strict=True)))
                alarms += bool(names) or common
            error = np.sqrt(alarms * (studies - alarms) / studies) / studies
            cells.append(f"{alarms / studies:.1%} ± {1.96 * error:.1%}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("databases", type=Path, nargs="+")
    parser.add_argument("--simulate", type=int, default=0, metavar="STUDIES")
    arguments = parser.parse_args()
    generator = np.random.default_rng(1)
    kinds = {False: [], True: []}
    factors = " | ".join(f"{factor - 1:+.0%}" for factor in CHANGES)
    print(f"| first, second | pairs (doubtful) | false alarms | {CHANGED} changed by | {factors} |")
    print("|---" * (4 + len(CHANGES)) + "|")
    numbered = enumerate(arguments.databases, 1)
    for (number, first), (other, second) in itertools.combinations(numbered, 2):
        [pairing] = pair_databases(first, second)
        names, common, quantity = named(pairing.pairs)
        for kind, values in standardised(quantity).items():
            kinds[kind].append(values)
        count = sum(change.doubtful for change in quantity.changes)
        alarms = f"{len(names)}{' and the common factor' if common else ''}"
        copies = [(before, before) for before, _ in pairing.pairs]
        for where, pairs in (("a copy", copies), ("the second", pairing.pairs)):
            cells = [found(pairs, factor, generator) for factor in CHANGES]
            text = " | ".join(f"{hits:.1f}" for hits, _ in cells)
            others = max(wrong for _, wrong in cells)
            print(
                f"| {number}, {other} | {len(pairing.pairs)} ({count}) | {alarms} "
                f"| in {where} (others: {others:g}) | {text} |",
                flush=True,
            )
    print("\nDegrees of freedom of Student's t that fit, by likelihood:\n")
    for kind, values in kinds.items():
        if values:
            best, least, most = tail(np.concatenate(values))
            used = DOUBTFUL_TAIL if kind else SOUND_TAIL
            label = "doubtful" if kind else "sound"
            number = sum(map(len, values))
            print(f"{label} pairs ({number}): {best} ({least} to {most}); used: {used:g}")
    if arguments.simulate:
        print()
        simulate(pairing.pairs, arguments.simulate, generator)


if __name__ == "__main__":
    main()
