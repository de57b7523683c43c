"""Seconds and memory to extract every model of torchvision, in one process, model by model.

    python tests/benchmarks/zoo.py [PATTERN ...]

Prints for each model its calls, tuples, seconds and the peak memory of the process so far; then
each family's sums, how seconds grow with calls, and the unique tuples over all models.
"""

import resource
import sys
import time
import warnings
from collections import Counter, defaultdict

import torch
from opcost import zoo
from opcost.extraction import extract_model_tuples

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
    started = time.perf_counter()
    for name, definition in definitions.items():
        tuples = extract_model_tuples(definition)
        calls, seconds = len(tuples.calls), tuples.extraction_s
        per_call = f"{seconds / calls * 1e3:.2f}" if calls else "-"
        row = (name, calls, len(tuples.tuples), f"{seconds:.2f}", per_call, f"{peak_mib():.0f}")
        print(ROW.format(*row), tuples.refusal or "", flush=True)
        ids |= tuples.by_id.keys()
        kernel_ids |= {key for key, record in tuples.by_id.items() if record.launches_kernel}
        family = zoo.family(name)
        sums[family] += Counter(models=1, calls=calls, refused=tuples.refusal is not None)
        sums[family]["seconds"] += seconds
    print()
    for family, counts in sums.items():
        print(
            f"{family}: {counts['models']} models ({counts['refused']} refused), "
            f"{counts['calls']} calls, {counts['seconds']:.1f} s"
        )
    total = time.perf_counter() - started
    print(
        f"all: {sum(counts['calls'] for counts in sums.values())} calls, {len(ids)} unique tuples, "
        f"{len(kernel_ids)} more than views, {total:.1f} s, peak {peak_mib():.0f} MiB"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
