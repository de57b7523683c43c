"""How much device time does a precision take: in planned rounds, and measuring everything again?

For models of a finished study, from what the first executions took: the device time until half of
the models have sums and wholes of the requested 95 % half-width, if executions scatter by 3 % as
rounds are planned for before a machine's scatter is known. It counts measurements alone, without
the method's own error, which no repetition narrows.

    PYTHONPATH=scripts python -m tests.benchmarks.time_to_precision FOLDER [--models 12]
"""

import argparse
import math
import random
import statistics
from pathlib import Path

from opcost.executions import Executions
from opcost.planning.rounds import Known, expect_rounds
from opcost.results_folder import MODELS, OPERATORS, extraction, measurements, target_folder
from opcost.rows import records, schemas
from opcost.study import Precision
from opcost.tuples.model_tuples import read_model_tuples

MOST_ROUNDS = 200


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="local")
    parser.add_argument("--models", type=int, default=12)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--half-widths", type=float, nargs="+", default=[0.05, 0.03, 0.02, 0.01])
    arguments = parser.parse_args()
    results = arguments.folder / "results"
    known = executed_once(target_folder(arguments.target, results))
    names = sorted(name for kind, name in known if kind == MODELS)
    extracted = {name: read_model_tuples(extraction(name, results)) for name in names}
    complete = [name for name in names if calls(extracted[name]).keys() <= known.keys()]
    count = min(arguments.models, len(complete))
    generator = random.Random(0)
    draws = [generator.sample(complete, count) for _ in range(arguments.draws)]
    print(f"{count} of {len(complete)} models, drawn {len(draws)} times; medians")
    print("| half-width | rounds: all again | planned | device time: all again | planned | ratio |")
    print("|---|---|---|---|---|---|")
    for half_width in arguments.half_widths:
        found = [needed([extracted[name] for name in draw], known, half_width) for draw in draws]
        again, planned, again_s, planned_s = map(statistics.median, zip(*found, strict=True))
        ratio = statistics.median(each[3] / each[2] for each in found)
        print(
            f"| {half_width:.0%} | {again:.0f} | {planned:.0f} | {again_s:.0f} s "
            f"| {planned_s:.0f} s | {ratio:.2f} |"
        )


def executed_once(folder):
    """What round 1 found of each subject that it could measure."""
    found = {}
    for kind in (OPERATORS, MODELS):
        for path in measurements(folder, kind):
            [row] = records.read(path, schemas.MEASUREMENTS[kind]).to_pylist()
            if row["status"] == "ok":
                value = Executions([row["time_s"]], [None])
                found[kind, path.stem] = Known(value, row["device_time_s"])
    return found


def calls(model):
    """The tuples of a model, as subjects."""
    return {(OPERATORS, record.operator_tuple.tuple_id): n for record, n in model.kernels()}


def needed(models, known, half_width):
    """Rounds and seconds of measuring everything again, and of planned rounds: (2, 2)."""
    subjects = {(MODELS, each.model) for each in models}.union(*map(calls, models))
    known = {subject: known[subject] for subject in sorted(subjects)}
    once_s = sum(each.device_time_s for each in known.values())
    [first] = expect_rounds([3], models, known, Precision(half_width), left_s=0)
    again = max(1, math.ceil((median_of(first) / half_width) ** 2))
    total_s, number = once_s, 1
    later = expect_rounds(range(2, MOST_ROUNDS), models, known, Precision(half_width))
    while median_of(first) > half_width:
        first = later[number - 1]
        total_s, number = total_s + first.needed_s, number + 1
    return again, number, again * once_s, total_s


def median_of(planned):
    return statistics.median(planned.half_widths.values())


if __name__ == "__main__":
    main()
