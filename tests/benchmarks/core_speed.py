"""Do executions follow the speed of the core, as the sentinel tells it? On finished studies.

For each results folder, over the pairs of executions of an operator, and of a whole model: how the
logarithms of the two times' ratio and of the two speeds' ratio correlate, and how executions
scatter without and with the speed. Ratios beyond 1.4 are left out. The speed of operators is from
the sentinel's time, which older rows have as well.

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
    for results in parser.parse_args().results:
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


def pairs_of(results, kind):
    """For each pair of executions: the logarithms of the ratios of times and of speeds."""
    found = defaultdict(list)
    for folder in target_folders(results):
        for path in all_measurements(folder):
            if series_of(path).kind == kind:
                [row] = records.read(path, schemas.MEASUREMENTS[kind], COLUMNS).to_pylist()
                if row["status"] == "ok" and row["launch_mode"] == EAGER and speed(row, kind):
                    found[folder, path.stem].append((row["time_s"], speed(row, kind)))
    for executions in found.values():
        for one, other in itertools.combinations(executions, 2):
            yield [math.log(after / before) for before, after in zip(one, other, strict=True)]


def speed(row, kind):
    """The speed of the core, in a unit that all rows of a target share; None if unknown."""
    if kind == MODELS:
        return row["core_speed_per_s"]
    return 1 / row["sentinel_time_s"] if row["sentinel_time_s"] else None


if __name__ == "__main__":
    main()
