"""Do executions follow the speed of the core, as the sentinel tells it? On finished studies.

For each results folder, over the pairs of executions of an operator, and of a whole model: how the
logarithms of the two times' ratio and of the two speeds' ratio correlate, and how executions
scatter without and with the speed. Ratios beyond 1.4 are left out. The speed of operators is from
the sentinel's time, which older rows have as well. Then, for each round: how much quicker the core
was during whole models than during operators, with its standard error. Last, beside whole models
that were measured in every round: by how much the mean speeds of models differ (standard
deviation), how much the scatter of the speeds of one explains of that, and that scatter itself.

    PYTHONPATH=scripts python -m tests.benchmarks.core_speed RESULTS...
"""

import argparse
import itertools
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
from opcost.launch_modes import EAGER
from opcost.results_folder import MODELS, OPERATORS, all_measurements, series_of, target_folders
from opcost.rows import records, schemas

LARGEST = math.log(1.4)
COLUMNS = ("status", "launch_mode", "time_s", "core_speed_per_s", "sentinel_time_s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="+")
    print("| study | subjects | pairs | correlation | executions scatter by | with their speed |")
    print("|---|---|---|---|---|---|")
    folders = parser.parse_args().results
    for results in folders:
        for kind in (OPERATORS, MODELS):
            pairs = np.array(list(pairs_of(results, kind)))
            pairs = pairs[abs(pairs[:, 0]) < LARGEST] if len(pairs) else pairs
            if len(pairs) < 3:
                continue
            times, speeds = pairs.T
            scatter, known = (np.std(each) / math.sqrt(2) for each in (times, times + speeds))
            print(
                f"| {results} | {kind} | {len(pairs)} | {-np.corrcoef(times, speeds)[0, 1]:.2f} "
                f"| {scatter:.1%} | {known:.1%} |"
            )

    print("\n| study | round | during models quicker by |\n|---|---|---|")
    for results in folders:
        for number, quicker, error in during_models(results):
            print(f"| {results} | {number} | {quicker:+.1%} ± {error:.1%} |")

    print("\n| study | models | rounds | mean speeds differ by | explained | speeds scatter by |")
    print("|---|---|---|---|---|---|")
    for results in folders:
        if (speeds := speeds_by_round(results)).size and min(speeds.shape) > 1:
            means = speeds.mean(axis=1)
            rest = speeds - means[:, None] - speeds.mean(axis=0) + means.mean()
            models, rounds = speeds.shape
            scatter = math.sqrt((rest**2).sum() / (models - 1) / (rounds - 1))
            print(
                f"| {results} | {models} | {rounds} | {means.std(ddof=1):.1%} "
                f"| {scatter / math.sqrt(rounds):.1%} | {scatter:.1%} |"
            )


def during_models(results):
    """For each round with some models: number, logarithm of the ratio of speeds, standard error."""
    speeds = defaultdict(list)
    for kind in (OPERATORS, MODELS):
        for path, row in rows_of(results, kind):
            if row["core_speed_per_s"]:
                speeds[series_of(path).round, kind].append(math.log(row["core_speed_per_s"]))
    for number in sorted({number for number, kind in speeds if kind == MODELS}):
        models, operators = (np.array(speeds[number, kind]) for kind in (MODELS, OPERATORS))
        if min(len(models), len(operators)) > 2:
            errors = [np.std(each, ddof=1) / math.sqrt(len(each)) for each in (models, operators)]
            yield number, models.mean() - operators.mean(), math.hypot(*errors)


def speeds_by_round(results):
    """Logarithms of the speed: a row for each whole model that every round has, a column for each
    round."""
    found = defaultdict(dict)
    for path, row in rows_of(results, MODELS):
        if row["core_speed_per_s"]:
            found[path.stem][series_of(path).round] = math.log(row["core_speed_per_s"])
    rounds = sorted({number for speeds in found.values() for number in speeds})
    complete = [speeds for speeds in found.values() if len(speeds) == len(rounds)]
    return np.array([[speeds[number] for number in rounds] for speeds in complete])


def pairs_of(results, kind):
    """For each pair of executions: the logarithms of the ratios of times and of speeds."""
    found = defaultdict(list)
    for path, row in rows_of(results, kind):
        if speed(row, kind):
            found[path.parent.parent, path.stem].append((row["time_s"], speed(row, kind)))
    for executions in found.values():
        for one, other in itertools.combinations(executions, 2):
            yield [math.log(after / before) for before, after in zip(one, other, strict=True)]


def rows_of(results, kind):
    for folder in target_folders(results):
        for path in all_measurements(folder):
            if series_of(path).kind == kind:
                [row] = records.read(path, schemas.MEASUREMENTS[kind], COLUMNS).to_pylist()
                if row["status"] == "ok" and row["launch_mode"] == EAGER:
                    yield path, row


def speed(row, kind):
    """The speed of the core, in a unit that all rows of a target share; None if unknown."""
    if kind == MODELS:
        return row["core_speed_per_s"]
    return 1 / row["sentinel_time_s"] if row["sentinel_time_s"] else None


if __name__ == "__main__":
    main()
