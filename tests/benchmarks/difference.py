"""Does `opcost diff` name what changed, and nothing else? On drawn studies and on repeated ones.

In pairs of studies: how often an operator or the common change is named although none changed, and
how many of ten operators are found whose time after has been multiplied. Drawn operators vary
unequally (their variances as 6 / chi^2 with 6 degrees of freedom), by 2 % in the middle; each study
is off as a whole by 2 %, too. Databases are of one study that was repeated on one machine.

    PYTHONPATH=scripts python -m tests.benchmarks.difference [FIRST SECOND...] [--draws 200]
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
from opcost.difference.databases import adjust, changes_of
from opcost.difference.pairing import Pairing, pair_databases
from opcost.rows import schemas
from opcost.rows.quantities import TIME

LEVEL = 0.05
FACTORS = (1.1, 1.2, 1.5)
CHANGED = 10
SD, TAIL = 0.02, 6.0
BLOCK_ERROR = 0.005
STUDIES = ((5, 1), (100, 1), (500, 1), (100, 3), (500, 3))
ROW = dict.fromkeys(schemas.DATABASE.names) | {"target": "local", "status": "ok", "flags": []}


def named(pairing, chosen=(), factor=1.0):
    """The tuple ids that are named, and whether the common change is, once the times after of the
    chosen tuples are multiplied.
    """
    changed = {each: slower(pairing.after[each], factor) for each in chosen}
    after = {**pairing.after, **changed}
    of = next(changes_of(Pairing("before", "after", pairing.before, after)))
    adjust([each for each in (of.common, *of.operators) if each], LEVEL)
    ids = {each.before["tuple_id"] for each in of.operators if each.significant}
    return ids, bool(of.common and of.common.significant)


def slower(row, factor):
    """The row with its times multiplied."""
    columns = {name: row[name] * factor for name in TIME.names}
    return row | columns | {TIME.runs: [each * factor for each in row[TIME.runs]]}


def found(pairing, factor, generator):
    """How many of ten tuples are found, and which share of those named did not change."""
    ids = sorted(each["tuple_id"] for each, _ in pairing.pairs)
    chosen = set(generator.choice(ids, min(CHANGED, len(ids) // 2), replace=False).tolist())
    names, _ = named(pairing, chosen, factor)
    return len(names & chosen), len(names - chosen) / max(1, len(names))


def drawn(number, runs, generator):
    """Two studies of which no operator changed."""
    sds = np.sqrt(SD**2 * TAIL / generator.chisquare(TAIL, (number, 1)) + BLOCK_ERROR**2)
    sides = []
    for _ in range(2):
        logs = generator.normal(0, SD) + sds * generator.normal(size=(number, runs))
        sides.append({str(index): measured(index, each) for index, each in enumerate(logs)})
    return Pairing("before", "after", *sides)


def measured(number, logs):
    """The row of a tuple with these logarithms of the times of its runs, in milliseconds."""
    time_s = float(1e-3 * np.exp(logs.mean()))
    runs = {TIME.runs: (1e-3 * np.exp(logs)).tolist(), TIME.run_errors: [BLOCK_ERROR] * len(logs)}
    return ROW | {"tuple_id": str(number)} | dict.fromkeys(TIME.names, time_s) | runs


def line(name, pairings, generator, draws):
    """A line of a table: over pairs of studies, what is named."""
    alarms = [named(each) for each in pairings]
    cells = []
    for factor in FACTORS:
        counts = [found(each, factor, generator) for each in pairings for _ in range(draws)]
        hits, false = np.mean(counts, axis=0)
        cells.append(f"{hits:.1f} ({false:.1%})")
    any_operator = np.mean([bool(ids) for ids, _ in alarms])
    common = np.mean([common for _, common in alarms])
    print(f"| {name} | {any_operator:.1%} | {common:.1%} | {' | '.join(cells)} |", flush=True)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("databases", type=Path, nargs="*")
    parser.add_argument("--draws", type=int, default=200)
    arguments = parser.parse_args()
    generator = np.random.default_rng(1)
    factors = " | ".join(f"{factor - 1:+.0%}" for factor in FACTORS)
    print(f"| studies | false alarms | of the common change | {factors} (false) |")
    print("|---" * (3 + len(FACTORS)) + "|")
    for number, runs in STUDIES:
        pairings = [drawn(number, runs, generator) for _ in range(arguments.draws)]
        line(f"{number} operators, {runs} runs of each", pairings, generator, 1)
    for first, second in itertools.combinations(arguments.databases, 2):
        [pairing] = pair_databases(first, second, {"local": "local"})
        line(f"{first.parent.name}, {second.parent.name}", [pairing], generator, 20)


if __name__ == "__main__":
    main()
