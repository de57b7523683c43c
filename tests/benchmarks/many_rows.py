"""What do a million rows of a hundred devices cost?

Rows are drawn from the reference data: the tuples are those of torchvision's classification models
at several batch sizes, and each row has the values of a measured one, scaled by its work and by a
factor of its device. Each command runs in a process of its own. Its seconds and its memory stand
beside those of DuckDB alone, which reads the columns that the command reads.

    python -m tests.benchmarks.many_rows FOLDER [--devices 10 100] [--tuples 10000]
"""

import argparse
import datetime
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from opcost.costs.explanation import OF_OPERATORS
from opcost.databases.database import REFERENCE
from opcost.models import zoo
from opcost.queries.query import DEFAULT_COLUMNS
from opcost.rows import records, schemas
from opcost.rows.quantities import ENERGY, HOST_TIME, TIME
from opcost.tuples.shipped_calls import shipped_calls

BATCHES = (32, 1, 8, 64, 2, 16, 128, 4, 256)
SCALED = (*TIME.names, *ENERGY.names, *HOST_TIME.names)
LISTS = ("block_time_s", TIME.runs, HOST_TIME.runs)
MOST_SCALE = 4.0


def tuples(number: int) -> list[dict[str, Any]]:
    """The columns of distinct tuples of torchvision's models."""
    found: dict[str, dict[str, Any]] = {}
    for batch in BATCHES:
        for definition in zoo.select(["classification"], ["*"], batch).values():
            model = shipped_calls(definition)
            for record in model.tuples if model else ():
                columns = records.operator_columns(record)
                found[columns["tuple_id"]] = columns | {"parameters": [*record.parameters]}
            if len(found) >= number:
                return [*found.values()][:number]
    raise SystemExit(f"torchvision's models have {len(found)} tuples")


def contribution(
    number: int, calls: list[dict[str, Any]], measured: list[dict[str, Any]]
) -> pa.Table:
    """The database of one device."""
    draw = random.Random(number)
    target, base = f"gpu{number:03}", draw.choice(measured)["target"]
    rows = [row for row in measured if row["target"] == base and row["status"] == "ok"]
    of_operator: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_operator.setdefault(row["operator"], []).append(row)
    state = {
        "target": target,
        "device_name": f"GPU {number:03}",
        "device_uuid_hash": f"{number:016x}",
        "machine_id_hash": f"{number:016x}",
    }
    speed = math.exp(draw.gauss(0, 0.5))
    later = datetime.timedelta(hours=number)
    found = []
    for call in calls:
        row = draw.choice(of_operator.get(call["operator"], rows))
        ratio = max(call["bytes"] or 1, 1) / max(row["bytes"] or 1, 1)
        factor = speed * min(max(ratio, 1 / MOST_SCALE), MOST_SCALE)
        scaled = {name: row[name] and row[name] * factor for name in SCALED}
        scaled |= {
            name: row[name] and [each and each * factor for each in row[name]] for name in LISTS
        }
        times = {
            name: row[name] and row[name] + later
            for name in ("measured_at", "started_at", "ended_at")
        }
        found.append(row | scaled | times | state | call)
    return pa.Table.from_pylist(found, schemas.DATABASE)


def measured() -> list[dict[str, Any]]:
    """The rows of real GPUs."""
    paths = sorted(REFERENCE.glob("h*.parquet"))
    return [row for path in paths for row in records.read(path, schemas.DATABASE).to_pylist()]


def write(folder: Path, devices: int, number: int) -> list[Path]:
    """The databases of devices, where they do not exist."""
    calls, rows = tuples(number), measured()
    paths = [folder / f"lab{device:03}" / "database.parquet" for device in range(devices)]
    for device, path in enumerate(paths):
        if not path.exists():
            batches = contribution(device, calls, rows).to_batches()
            records.write_batches(path, schemas.DATABASE, batches)
    return paths


def run(command: Sequence[str]) -> tuple[float, float]:
    """The seconds and the MiB of a command."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 3):
        raise SystemExit(f"{' '.join(command)}: {errors}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def scan(paths: Sequence[Path], columns: Sequence[str]) -> tuple[float, float]:
    """The seconds and the MiB of DuckDB that reads columns of files."""
    program = (
        "import duckdb, sys; files = sys.argv[2:]; reader = duckdb.sql(f'SELECT {sys.argv[1]} "
        "FROM read_parquet({files}, union_by_name=true)').to_arrow_reader(10000)\n"
        "for batch in reader: pass"
    )
    return run([sys.executable, "-c", program, ", ".join(columns), *map(str, paths)])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--devices", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--tuples", type=int, default=10_000)
    arguments = parser.parse_args()
    opcost = [sys.executable, "-m", "opcost"]
    model = ["explain", "resnet50", "--batch", "32"]
    print(f"{'rows':>8} {'command':24} {'s':>7} {'MiB':>6} {'DuckDB s':>9} {'MiB':>6} {'ratio':>6}")
    for devices in arguments.devices:
        paths = write(arguments.folder, devices, arguments.tuples)
        merged, name = (
            arguments.folder / f"merged{devices}",
            str(arguments.folder / f"merged{devices}"),
        )
        every = schemas.DATABASE.names
        plain = [column for column in every if column not in schemas.RAW_BLOCKS]
        csv = str(arguments.folder / "exported.csv")
        for title, command, columns in (
            ("merge", ["merge", *map(str, paths), "-o", name], every),
            ("merge one more", ["merge", name, str(paths[0]), "-o", name], every),
            ("query", ["query", name, "--operator", "conv2d", "--limit", "5"], DEFAULT_COLUMNS),
            (
                "sql",
                ["sql", "SELECT operator, sum(time_s) FROM operators GROUP BY ALL", "-d", name],
                ["operator", "time_s"],
            ),
            ("explain, all targets", [*model, "-d", name], OF_OPERATORS),
            ("explain, one target", [*model, "-d", name, "-t", "gpu001"], OF_OPERATORS),
            ("export as CSV", ["export", name, csv], plain),
            ("report", ["report", name, "--output", csv.replace(".csv", ".html")], plain),
        ):
            seconds, mib = run([*opcost, *command])
            read = (
                paths if title.startswith("merge") else sorted((merged / "rows").rglob("*.parquet"))
            )
            least_s, least_mib = scan(read, columns)
            print(
                f"{devices * arguments.tuples:>8} {title:24} {seconds:>7.2f} {mib:>6.0f} "
                f"{least_s:>9.2f} {least_mib:>6.0f} {seconds / least_s:>6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
