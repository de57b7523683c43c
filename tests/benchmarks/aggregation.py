"""Does the cost of aggregation grow with its work, and no faster? Seconds and peak memory.

Makes measurement files by the project's own schema, with raw values as a GPU's rows have them, then
runs each step of aggregation in a process of its own: the database, a merge of two, the manifest
and the comparison. Each step runs at two sizes; `growth` is the ratio of its seconds over that of
its work, so 1 is linear, and less where a fixed cost matters. Seconds are the processor's; memory
is the process's peak beyond what it had before the step.

    PYTHONPATH=scripts python -m tests.benchmarks.aggregation [--files 500 5000]
"""

import argparse
import gc
import json
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from opcost.costs import comparison, estimate
from opcost.databases.aggregation import write_database
from opcost.databases.measured import Measured
from opcost.databases.merging import merge
from opcost.rows import records, schemas
from opcost.rows.quantities import ENERGY, TIME
from opcost.statistics import Estimate
from opcost.tuples import manifest, model_tuples
from opcost.tuples.model_tuples import ModelCall, ModelTuples
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.tuple_record import TupleRecord

BATCHES, SAMPLES = 40, 200
CALLS_PER_TUPLE = 3


def record(number: int) -> TupleRecord:
    """A convolution that no other number has."""
    image = TensorSpec((1, number + 1, 56, 56), "float32")
    weight = TensorSpec((64, number + 1, 3, 3), "float32")
    convolution = OperatorTuple(
        "aten.conv2d.default", (("input", image), ("padding", (1, 1)), ("weight", weight))
    )
    return TupleRecord(convolution, (image,), True, number, number, ("weight",))


def row(number: int) -> dict:
    """A measurement of it, all columns of a GPU's row that take room filled."""
    return {
        **records.operator_columns(record(number)),
        "target": "gpu",
        "status": "ok",
        **TIME.columns(estimate_of(random.random())),
        **ENERGY.columns(estimate_of(random.random())),
        "batch_time_s": [random.random() for _ in range(BATCHES)],
        "batch_undisturbed": [True] * BATCHES,
        "power_sample_w": [random.random() for _ in range(SAMPLES)],
        "power_sample_time_s": [random.random() for _ in range(SAMPLES)],
        "meter_missing": {"brake_throttle_s": "not supported by this device"},
        "converged": True,
        "flags": [],
        "conditions_json": json.dumps({f"setting_{index}": index for index in range(25)}),
        "protocol_version": 3,
        "device_name": "Simulated GPU",
        "device_uuid_hash": "0123456789abcdef",
        "torch_version": "2.15.0",
        "measured_at": datetime.now(UTC),
    }


def estimate_of(value: float) -> Estimate:
    """A result, uncertain by a tenth."""
    return Estimate(value, 0.9 * value, 1.1 * value)


def make_files(paths: Iterable[Path]) -> None:
    """A row in each, which is of the tuple that its file is named after."""
    for number, path in enumerate(paths):
        records.write(path, schemas.OPERATOR, [row(number)])


def models_of(tuples: int) -> list[ModelTuples]:
    """Models of some hundred tuples, of which neighbours share half."""
    size = 200
    all_records = [record(number) for number in range(tuples)]
    return [
        ModelTuples(
            f"model_{start}",
            tuple(all_records[start : start + size]),
            tuple(
                ModelCall(index % size, "features", "Conv2d")
                for index in range(CALLS_PER_TUPLE * size)
            ),
            0,
            "2.15.0",
        )
        for start in range(0, tuples - size + 1, size // 2)
    ]


def in_own_process(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds of the processor, and MB of memory beyond those that the process began with."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        gc.freeze()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        work()
        seconds = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        os.write(writer, json.dumps([seconds, peak / 1024]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return tuple(json.loads(text))


def file_steps(folder: Path, files: int) -> dict[str, Callable[[], None]]:
    """The steps whose work is rows."""
    operators, database = folder / f"{files}/gpu/operators", folder / f"database_{files}.parquet"
    half, merged = folder / f"half_{files}.parquet", folder / f"merged_{files}.parquet"
    ids = (record(number).operator_tuple.tuple_id for number in range(files))
    paths = [operators / f"{tuple_id}.parquet" for tuple_id in ids]

    def read_columns() -> None:
        columns = estimate.OPERATOR_COLUMNS
        records.read(database, schemas.DATABASE, columns).to_pylist()

    def write_all() -> None:
        write_database(Measured(paths), database)

    def write_half() -> None:
        write_database(Measured(paths[: files // 2]), half)

    def merge_both() -> None:
        merge([database, half], merged)

    return {
        "make files": lambda: make_files(paths),
        "database": write_all,
        "read for the comparison": read_columns,
        "(half a database)": write_half,
        "merge with its half": merge_both,
    }


def tuple_steps(folder: Path, tuples: int) -> dict[str, Callable[[], None]]:
    """The steps whose work is tuples and calls."""
    models = models_of(tuples)
    pickles = [folder / f"{tuples}_{model.model}.pkl" for model in models]
    path = folder / f"manifest_{tuples}.json"
    rows = [
        {"target": "gpu", **dict.fromkeys(estimate.OPERATOR_COLUMNS), **row(number)}
        for number in range(tuples)
    ]
    wholes = [
        dict.fromkeys(schemas.MODEL.names)
        | {name: value for name, value in row(0).items() if name in schemas.MODEL.names}
        | {"model": model.model}
        for model in models
    ]

    def extract() -> None:
        for model, pickle in zip(models, pickles, strict=True):
            model_tuples.write_model_tuples(pickle, model)

    def collect() -> None:
        found = manifest.collect(map(model_tuples.read_model_tuples, pickles), None)
        manifest.write_manifest(path, found)

    def compare() -> None:
        read = [model_tuples.read_model_tuples(pickle) for pickle in pickles]
        on_targets = {row["target"]: read for row in wholes}
        comparison.compare_study(on_targets, rows, wholes, manifest.read_manifest(path))

    return {"write extractions": extract, "collect": collect, "compare": compare}


def table(name: str, sizes: list[int], steps: Callable[[int], dict]) -> None:
    """Run every step at every size, and print a line for each."""
    print(f"\n{name:24}" + "".join(f"{size:>10} s{'MB':>8}" for size in sizes) + f"{'growth':>9}")
    by_size = [steps(size) for size in sizes]
    for step in by_size[0]:
        results = [in_own_process(work[step]) for work in by_size]
        growth = results[-1][0] / results[0][0] / (sizes[-1] / sizes[0])
        cells = "".join(f"{seconds:>12.2f}{peak:>8.0f}" for seconds, peak in results)
        print(f"{step:24}{cells}{growth:>9.2f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs=2, default=[500, 5000])
    parser.add_argument("--tuples", type=int, nargs=2, default=[1000, 8000])
    arguments = parser.parse_args()
    random.seed(0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        table("rows", arguments.files, partial(file_steps, folder))
        table("tuples", arguments.tuples, partial(tuple_steps, folder))
