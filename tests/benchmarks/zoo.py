"""Processor seconds and memory to extract every model of torchvision, in one process.

    PYTHONPATH=scripts python -m tests.benchmarks.zoo [PATTERN ...]

Prints for each model its calls, tuples, seconds and the peak memory of the process so far; then
each family's sums, how seconds grow with calls, and the unique tuples over all models. Processor
seconds are those of all threads; other programs lengthen them little.
"""

import math
import resource
import statistics
import sys
import time
import warnings
from collections import Counter, defaultdict

import torch
from opcost.models import zoo
from opcost.tuples.extraction import extract_model_tuples

ROW = "{:<40}{:>8}{:>8}{:>8}{:>10}{:>10}"


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(patterns: list[str]) -> None:
    warnings.simplefilter("ignore")
    definitions = zoo.select(list(zoo.official_inputs()), patterns or ["*"], 1)
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    print(ROW.format("model", "calls", "tuples", "seconds", "ms/call", "peak MiB"))
    ids: set[str] = set()
    kernel_ids: set[str] = set()
    sums: dict[str, Counter] = defaultdict(Counter)
    points: list[tuple[int, float]] = []
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    for name, definition in definitions.items():
        before_s = time.process_time()
        tuples = extract_model_tuples(definition)
        calls, seconds = len(tuples.calls), time.process_time() - before_s
        per_call = f"{seconds / calls * 1e3:.2f}" if calls else "-"
        row = (name, calls, len(tuples.tuples), f"{seconds:.2f}", per_call, f"{peak_mib():.0f}")
        print(ROW.format(*row), tuples.refusal or "", flush=True)
        ids |= tuples.by_id.keys()
        kernel_ids |= {key for key, record in tuples.by_id.items() if record.launches_kernel}
        family = zoo.family(name)
        sums[family] += Counter(models=1, calls=calls, refused=tuples.refusal is not None)
        sums[family]["seconds"] += seconds
        kernels = [record for record in tuples.tuples if record.launches_kernel]
        sums[family]["tuples"] += len(kernels)
        sums[family]["dependent"] += sum(record.value_dependent for record in kernels)
        if calls and family != "detection":
            points.append((calls, seconds))
    print()
    for family, counts in sums.items():
        print(
            f"{family}: {counts['models']} models ({counts['refused']} refused), "
            f"{counts['calls']} calls, {counts['seconds']:.1f} s, {counts['dependent']} of "
            f"{counts['tuples']} tuples more than views depend on values"
        )
    # The exponent of seconds ~ calls^k: 1 is linear growth.
    logarithms = [[math.log(value) for value in column] for column in zip(*points, strict=True)]
    if len(points) > 2:
        fit = statistics.linear_regression(*logarithms)
        print(f"seconds grow as calls^{fit.slope:.2f} (detection left out)")
    total_s, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    print(
        f"all: {sum(counts['calls'] for counts in sums.values())} calls, {len(ids)} unique tuples, "
        f"{len(kernel_ids)} more than views, {cpu_s:.1f} s of processor time in {total_s:.1f} s, "
        f"peak {peak_mib():.0f} MiB"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
