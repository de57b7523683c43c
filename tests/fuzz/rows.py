"""Rows of well-formed files, with values that no measurement can have."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from opcost.databases.aggregation import write_database
from opcost.databases.database import read_database
from opcost.databases.measured import find_measured
from opcost.rows import schemas
from opcost.rows.quantities import MEASURED
from opcost.rows.runs import noise_of

from tests.fuzz.subjects import DEVICE, forge, operator_row, write_json
from tests.fuzz.tally import Case

FLOATS = (
    "time_s", "time_ci_low_s", "time_ci_high_s", "energy_j", "energy_ci_low_j", "energy_ci_high_j",
    "power_w", "idle_power_w", "host_time_s", "sentinel_time_s", "quiet_sentinel_time_s",
    "sensor_refresh_s", "sensor_averaging_s", "sm_clock_mhz", "power_limit_w", "device_time_s",
    "temperature_end_c", "load_average", "utilisation",
)  # fmt: skip
COUNTS = (
    "bytes", "flops", "repeats", "block_iterations", "operand_sets", "footprint_bytes", "threads",
    "cpu_count", "last_level_cache_bytes", "core_cache_bytes", "protocol_version",
)  # fmt: skip
LISTS = ("block_time_s", "power_sample_w", "power_sample_time_s")
MAY_BE_NEGATIVE = ("temperature_end_c", "power_sample_time_s", "energy_ci_low_j")
NO_NUMBERS = (math.nan, math.inf, -math.inf)

Change = Callable[[dict[str, Any], random.Random], str]


def a_number(row: dict[str, Any], generator: random.Random) -> str:
    """A number that is none, or negative where it cannot be."""
    name = generator.choice(FLOATS)
    wrong = NO_NUMBERS if name in MAY_BE_NEGATIVE else (*NO_NUMBERS, -1.0, -1e-12)
    row[name] = generator.choice(wrong)
    return f"{name} {row[name]}"


def a_count(row: dict[str, Any], generator: random.Random) -> str:
    """A count below zero."""
    name = generator.choice(COUNTS)
    row[name] = generator.choice((-1, -(2**40)))
    return f"{name} {row[name]}"


def an_element(row: dict[str, Any], generator: random.Random) -> str:
    """A raw value that is no number, or negative."""
    name = generator.choice(LISTS)
    values = list(row[name])
    wrong = NO_NUMBERS if name in MAY_BE_NEGATIVE else (*NO_NUMBERS, -1.0)
    values[generator.randrange(len(values))] = value = generator.choice(wrong)
    row[name] = values
    return f"{name} holds {value}"


def an_interval(row: dict[str, Any], generator: random.Random) -> str:
    """An interval that does not hold its value."""
    name, unit = generator.choice((("time", "s"), ("energy", "j"), ("power", "w")))
    value = row[f"{name}_{unit}"]
    if generator.random() < 0.5:
        row[f"{name}_ci_low_{unit}"] = 2 * value
    else:
        row[f"{name}_ci_high_{unit}"] = value / 2
    return f"{name}: low, value, high are not in this order"


def a_status(row: dict[str, Any], generator: random.Random) -> str:
    """A status that there is not, or that the row contradicts."""
    kind = generator.randrange(3)
    if kind == 0:
        row["status"] = generator.choice(("bogus", "", "OK", "ok ", None))
    elif kind == 1:
        row["time_s"] = None
    else:
        row["status"] = generator.choice(("error", "timeout", "crashed"))
    return f"status {row['status']!r} with time_s {row['time_s']}"


def an_identity(row: dict[str, Any], generator: random.Random) -> str:
    """A tuple that is another, or none."""
    name = generator.choice(("tuple_id", "canonical_json"))
    row[name] = generator.choice(("", "x", "../x", None, "0" * 16, "{}", "{"))
    return f"{name} {row[name]!r}"


def a_share(row: dict[str, Any], generator: random.Random) -> str:
    """A share above one."""
    row["utilisation"] = generator.choice((1.5, 100.0))
    return f"utilisation {row['utilisation']}"


CHANGES: tuple[Change, ...] = (
    a_number, a_count, an_element, an_interval, a_status, an_identity, a_share,
)  # fmt: skip


def row_values(folder: Path) -> Case:
    """One row with one wrong value, made into a database."""
    row = operator_row()
    path = folder / row["target"] / "cpu-0" / "operators" / f"{row['tuple_id']}.parquet"
    path.parent.mkdir(parents=True)
    write_json(path.parent.parent / "device.json", DEVICE)

    def case(generator: random.Random) -> str | None:
        changed = dict(row)
        wrong = generator.choice(CHANGES)(changed, generator)
        try:
            forge(path, changed, schemas.OPERATOR)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return None
        output = folder / "database.parquet"
        output.unlink(missing_ok=True)
        write_database(find_measured(folder), output)
        return wrong

    return case


def run_values(folder: Path) -> Case:
    """One row of a database with a wrong run: a number that has no logarithm, or one too few."""
    row = row_of_runs()
    path = folder / "database.parquet"
    lists = [name for name, values in row.items() if name.startswith("run_") and values]

    def case(generator: random.Random) -> str:
        name = generator.choice(lists)
        values = list(row[name])
        place = generator.randrange(2)
        if isinstance(values[0], float) and generator.random() < 0.8:
            wrong = (*NO_NUMBERS, -1.0) if name.endswith("_error") else (*NO_NUMBERS, -1.0, 0.0)
            values[place] = generator.choice(wrong)
        else:
            del values[place]
        forge(path, row | {name: values}, schemas.DATABASE)
        found = read_database(path).to_pylist()
        noise = noise_of(found)
        shown = [str(noise.value(each, quantity)) for each in found for quantity in MEASURED]
        return f"{name} {values} gives {shown}"

    return case


def row_of_runs() -> dict[str, Any]:
    """A row of a database that joins two equal runs."""
    row = operator_row() | {"runs": 2, "run_round": [1, 2], "run_blocks": [10, 10]}
    for quantity in MEASURED:
        row |= {quantity.runs: [row[quantity.value]] * 2, quantity.run_errors: [0.01, 0.02]}
    return row
