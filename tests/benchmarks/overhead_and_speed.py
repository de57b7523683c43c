"""How does call overhead follow the speed of the core? From the samples of finished studies.

For each kind of call: the correlation of its logarithm with that of the speed, the exponent of the
least absolute deviations, and the standard deviation over processes without and with it.

    PYTHONPATH=scripts python -m tests.benchmarks.overhead_and_speed RESULTS...
"""

import argparse
from pathlib import Path

import numpy as np
from opcost.executions import Executions, Exponents, speed_law_of
from opcost.results_folder import overhead_files, target_folders
from opcost.rows.overhead_samples import read_samples
from opcost.rows.quantities import INFERENCE_CALLS

ANY = Exponents(0.0, 1e3, most=100.0)
"""Nothing is assumed of the exponent."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", nargs="+", type=Path)
    samples = [
        sample
        for results in parser.parse_args().results
        for folder in target_folders(results)
        for path in overhead_files(folder)
        for sample in read_samples(path)
        if sample.core_speed_per_s and not sample.disturbed
    ]
    speeds = [sample.core_speed_per_s for sample in samples]
    print(f"{len(samples)} processes")
    print("| call | median | correlation | exponent | scatter | at one speed |")
    print("|---|---|---|---|---|---|")
    for kind in INFERENCE_CALLS:
        found_s = [getattr(sample, f"{kind}_s") for sample in samples]
        if not all(found_s):
            print(f"| {kind} | unknown or zero in some processes | | | | |")
            continue
        executions = Executions(found_s, [None] * len(found_s), speeds)
        law = speed_law_of([executions], speeds, ANY)
        logs, slower = np.log(found_s), -np.log(speeds)
        cells = [
            f"{np.median(found_s) * 1e6:.1f} us",
            f"{np.corrcoef(slower, logs)[0, 1]:.2f}",
            f"{law.exponent:.1f} ± {law.exponent_error:.1f}",
            f"{logs.std():.1%}",
            f"{np.log(law.corrected(executions).values).std():.1%}",
        ]
        print(f"| {kind} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
