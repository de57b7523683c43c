"""How often does a gate alarm, and what does it find? On studies drawn around measured ones.

The values of a measured study are the truth. Drawn studies are off as a whole by one run of the
target, and in each value by its own error, whose variance is that of the value as 6 / chi^2 with 6
degrees of freedom; or all by twice as much as any single study shows. Counted are pairs of equal
studies that are red, pairs of which all things are at the limit, and how often one thing that takes
longer is found.

    PYTHONPATH=scripts python -m tests.benchmarks.gate DATABASE... [--draws 200] [--most 200]
"""

import argparse
import math
from pathlib import Path

import numpy as np
from opcost.difference.gate import (
    Gated,
    Limit,
    Value,
    Verdict,
    adjust_levels,
    by_operator,
    changes,
    in_all,
    values_of_models,
    values_of_tuples,
)
from opcost.difference.pairing import pair_databases
from opcost.difference.summary import model_costs
from opcost.results_folder import ANSWERS
from opcost.rows.quantities import TIME

LEVEL = 0.05
STUDIES = (1, 2, 3, 5)
FACTORS = (1.05, 1.1, 1.2)
TAIL = 6.0
SDS, DISTANCES, COUNTS = (0.01, 0.02, 0.04), (0.05, 0.1), (1, 3, 30)


def measured(database):
    """The values of things in a measured study, by kind of thing."""
    [pairing] = pair_databases(database, database)
    tuples = in_all([values_of_tuples(pairing.before, TIME)])
    found = {"tuple": tuples, "operator": by_operator(tuples, pairing.before)}
    costs = {name: each for (name, _), each in model_costs(database.parent / ANSWERS.name).items()}
    if costs:
        found["model"] = in_all([values_of_models(costs, TIME, "end_to_end")])
    return {kind: [each for [each] in of.values()] for kind, of in found.items()}


def drawn(things, number, times, generator):
    """Logarithms of the values in studies before and after, the truth being 0."""
    own, of_study = (np.sqrt([each[part] for each in things]) for part in (1, 2))
    sds = times * own * np.sqrt(TAIL / generator.chisquare(TAIL, len(things)))
    logs = sds[:, None] * generator.normal(size=(len(things), 2 * number))
    return logs + times * of_study[0] * generator.normal(size=2 * number)


def verdicts(things, logs, limit):
    """The verdicts on things of which each study found these logarithms."""
    number = logs.shape[1] // 2
    values = {
        str(place): [Value(float(np.exp(log)), each.own, each.of_study) for log in row]
        for place, (each, row) in enumerate(zip(things, logs, strict=True))
    }
    found = [*changes(values, number, limit, "local", LEVEL)]
    adjust_levels(found, LEVEL)
    return [each.verdict for each in found]


def line(name, known, count, number, limit, times, draws, generator):
    """A line of the table."""
    red, green, at_limit, hits = 0, 0, 0, dict.fromkeys(FACTORS, 0)
    for _ in range(draws):
        places = generator.permutation(len(known))[:count]
        things = [known[place] for place in places]
        logs = drawn(things, number, times, generator)
        equal = verdicts(things, logs, limit)
        red += Verdict.WORSE in equal
        green += {*equal} == {Verdict.NOT_WORSE}
        all_slower = logs.copy()
        all_slower[:, number:] += np.log1p(limit.share)
        at_limit += Verdict.WORSE in verdicts(things, all_slower, limit)
        for factor in FACTORS:
            slower = logs.copy()
            slower[0, number:] += np.log(factor)
            hits[factor] += verdicts(things, slower, limit)[0] is Verdict.WORSE
    cells = [f"{each / draws:.1%}" for each in (red, at_limit, green)]
    cells += [f"{each / draws:.0%}" for each in hits.values()]
    print(f"| {name} | {times:g} | {limit} | {number} | {' | '.join(cells)} |", flush=True)


def needed():
    """Print how many studies of each side decide, with a probability of 80 %, on one of some things
    whose change is so far from the limit.
    """
    print("| runs vary by | distance | above, 1 thing | 3 things | 30 things | below, each thing |")
    print("|---" * 6 + "|")
    for sd in SDS:
        for distance in DISTANCES:
            above = [_studies(math.log1p(distance), sd, LEVEL / count) for count in COUNTS]
            cells = [*above, _studies(-math.log1p(distance), sd, LEVEL)]
            print(f"| {sd:.0%} | {distance:.0%} | {' | '.join(map(str, cells))} |")


def _studies(log, sd, level):
    """A study is off by a run, and so is a thing in it."""
    thing = Gated(Limit(TIME, 0.0), "", "", log, math.sqrt(2) * sd, (1, 1), level, level)
    return 1 + thing.further


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("databases", type=Path, nargs="*")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--most", type=int, default=200, help="things of a kind in a study")
    arguments = parser.parse_args()
    generator = np.random.default_rng(1)
    needed()
    header = "things | noise | limit | studies of each side | red | red if all are at the limit"
    print(f"\n| {header} | green | one +5% | one +10% | one +20% |")
    print("|---" * 10 + "|")
    for path in arguments.databases:
        for kind, known in measured(path).items():
            counts = {min(len(known), arguments.most), *([3] if kind == "model" else [])}
            for count in sorted(counts):
                for share, times in ((0.05, 1), (0.05, 2), (0.02, 1)):
                    for number in STUDIES:
                        name = f"{count} {kind}s of {path.parent.name}"
                        limit = Limit(TIME, share)
                        line(name, known, count, number, limit, times, arguments.draws, generator)


if __name__ == "__main__":
    main()
