"""What a job costs outside its measurement, in plain processes and in warm workers.

Runs one study in both ways (plain first, or `--first warm`), and compares: the gap between the end
of one trial and the start of the next, and the numbers of the same tuples. How far plain numbers
lie from one another (tuples that are measured again) is what warm ones are compared with.

    PYTHONPATH=scripts python -m tests.benchmarks.workers [--configfile tests/study/config.yaml]

With `--folder`, the two studies stay there, and one that is there already is not run again.
"""

import argparse
import itertools
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.dataset as ds

REPOSITORY = Path(__file__).parents[2]
PARTS = ("Snakefile", "workflow", "profiles", "config", "envs", "scripts", "tests")


def study(workers, configfile, again, folder):
    """Run the study; its operator rows, and those measured again."""
    root = folder / workers
    if not root.exists():
        root.mkdir(parents=True)
        for part in PARTS:
            copy = shutil.copytree if (REPOSITORY / part).is_dir() else shutil.copy
            copy(REPOSITORY / part, root / part)
    settings = [f"workers={workers}", f"measured_again={again}"]
    command = ["-m", "snakemake", "--cores", "1", "--configfile", configfile, "--config", *settings]
    subprocess.run([sys.executable, *command], cwd=root, check=True, stdout=sys.stderr)
    kinds = (root / "results/local" / kind for kind in ("operators", "again"))
    return tuple(ds.dataset(kind).to_table().to_pylist() if kind.exists() else [] for kind in kinds)


def gaps_s(rows):
    """Seconds between one trial and the next."""
    rows = sorted(rows, key=lambda row: row["started_at"])
    return [
        (later["started_at"] - earlier["ended_at"]).total_seconds()
        for earlier, later in itertools.pairwise(rows)
    ]


def differences(rows, others):
    """Natural logarithms of the ratios of two measurements of the same tuples."""
    times = {row["tuple_id"]: row["time_s"] for row in others if row["status"] == "ok"}
    return [
        math.log(row["time_s"] / times[row["tuple_id"]])
        for row in rows
        if row["status"] == "ok" and row["tuple_id"] in times
    ]


def main():
    """Print the gaps, and how the numbers differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--configfile", default="config/config.yaml")
    parser.add_argument("--again", type=int, default=40)
    parser.add_argument("--first", choices=("plain", "warm"), default="plain")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each job would compile the package
    order = sorted(("plain", "warm"), key=lambda kind: kind != arguments.first)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        found = {
            workers: study(workers, arguments.configfile, arguments.again, folder)
            for workers in order
        }
    print("| workers | tuples | trial, median | gap, median | 90th percentile | mean |")
    print("|---|---|---|---|---|---|")
    for workers, (rows, again) in found.items():
        assert {row["worker"] for row in rows} == {workers}
        trials = [(row["ended_at"] - row["started_at"]).total_seconds() for row in rows]
        gaps = gaps_s(rows + again)
        print(
            f"| {workers} | {len(rows)} | {statistics.median(trials):.2f} s "
            f"| {statistics.median(gaps):.2f} s | {statistics.quantiles(gaps, n=10)[-1]:.2f} s "
            f"| {statistics.mean(gaps):.2f} s |"
        )
    print()
    pairs = {
        "plain, measured again": differences(*reversed(found["plain"])),
        "warm, measured again": differences(*reversed(found["warm"])),
        "warm / plain": differences(found["warm"][0], found["plain"][0]),
    }
    for name, logarithms in pairs.items():
        if not logarithms:
            continue
        middle = math.expm1(statistics.median(logarithms))
        spread = math.expm1(statistics.median(abs(value) for value in logarithms))
        print(
            f"{name}: {len(logarithms)} pairs, median {middle:+.1%}, median distance {spread:.1%}"
        )


if __name__ == "__main__":
    main()
