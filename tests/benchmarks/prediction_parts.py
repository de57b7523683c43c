"""What does a prediction cost, and what does each part of the predictor contribute?

    python -m tests.benchmarks.prediction_parts [DATABASE ...]      default: the reference data

Cost: milliseconds of a tuple and of what only one model has, the fit to all rows included, and of a
further tuple; growth of the process's memory at most. Parts: errors of time without one of them, in
per cent, of a tenth of the tuples at a time, of the most work if what is left ends an octave below,
and of what only one model has. Without a level of the covariance, the next one has its weight.
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from opcost.prediction import kriging, predictor
from opcost.prediction.predictor import Predictor
from opcost.rows.quantities import TIME
from opcost.text import table

from tests.benchmarks.prediction import Make, answer, errors_of_tuples, predicted
from tests.benchmarks.prediction_splits import (
    Target,
    ends_left_out,
    models_left_out,
    read_targets,
    tenths_left_out,
)

_REPEATS = 5
_FURTHER = 100


class WithoutFloor(Predictor):
    """Interpolates costs instead of their ratios to the least time."""

    def base(self, tuple_id, flops, moved_bytes):
        """One second for every tuple."""
        return 1.0


_Constants = Mapping[str, Any]
PARTS: Mapping[str, tuple[Make, _Constants, _Constants]] = {
    "all parts": (Predictor, {}, {}),
    "without the floor": (WithoutFloor, {}, {}),
    "without the kind": (Predictor, {"_KIND": 0.0, "_FORM": 0.6}, {}),
    "without the form": (Predictor, {"_FORM": 0.0, "_KIND": 0.6}, {}),
    "without the operator": (Predictor, {"_OPERATOR": 0.0, "_FORM": 0.6}, {}),
    "without other operators": (Predictor, {"_ANY": 0.0, "_OPERATOR": 0.4}, {}),
    "without both": (Predictor, {"_ANY": 0.0, "_OPERATOR": 0.0, "_FORM": 0.5, "_KIND": 0.5}, {}),
    "disturbed rows as others": (Predictor, {}, {"_DISTURBED_VARIANCE": 0.0}),
}
"""Part that is left out -> class, constants of kriging.py and of predictor.py."""


def costs(target: Target) -> Iterator[str]:
    """What predictions of a target cost."""
    splits = [*models_left_out(target)] or [*tenths_left_out(target)]
    median = sorted(splits, key=lambda split: len(split.tested))[len(splits) // 2]
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    before_kib = _status_kib("VmRSS")
    found = []
    for _ in range(_REPEATS):
        began_s = time.perf_counter()
        one = Predictor(median.known, TIME, median.calls)
        answer(one, median.tested[0])
        first_s = time.perf_counter()
        for n in range(_FURTHER):
            answer(one, median.tested[n % len(median.tested)])
        further_s = time.perf_counter()
        predicted([median], TIME, Predictor)
        model_s = time.perf_counter() - further_s
        found.append((first_s - began_s, (further_s - first_s) / _FURTHER, model_s))
    first_ms, further_ms, model_ms = 1e3 * np.median(found, axis=0)
    grown_mib = (_status_kib("VmHWM") - before_kib) / 1024
    yield f"{len(median.known)} rows: a tuple {first_ms:.0f} ms, a further one {further_ms:.1f} ms"
    yield f"{len(median.tested)} tuples of {median.model or 'a tenth'}: {model_ms:.0f} ms"
    yield f"{grown_mib:.0f} MiB of memory"


def _status_kib(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def parts(target: Target) -> Iterator[list[str]]:
    """The cells of a table: the errors without each part."""
    end, _ = ends_left_out(target, 1, 1)
    splits = [[*tenths_left_out(target)], [end], [*models_left_out(target)]]
    for name, (make, of_kriging, of_predictor) in PARTS.items():
        cells = [name]
        with (
            patch.dict(vars(kriging), of_kriging),
            patch.dict(vars(predictor), of_predictor),
        ):
            for chosen in splits:
                errors = errors_of_tuples(predicted(chosen, TIME, make), TIME)[""].cells()
                cells += [errors[n] for n in (1, 2, 5, 6)]
        yield cells


def main() -> None:
    """Print both for all targets of the databases."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("databases", type=Path, nargs="*")
    columns = ("median", "90 % below", "hold", "half")
    header = ["a tenth; an octave beyond; own of a model", *(3 * columns)]
    for target in read_targets(parser.parse_args().databases):
        print(f"\n{target.name}")
        print("\n".join(costs(target)))
        print("\n".join(table(header, [*parts(target)])), flush=True)


if __name__ == "__main__":
    main()
