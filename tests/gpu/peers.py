"""What other procedures say of the longest, the median and the shortest operator of a database.

    PYTHONPATH=scripts python -m tests.gpu.peers results/database.parquet peers.csv

Each procedure runs with its own defaults, on one set of arguments: differences to opcost are also
those of the cache state. `needed_s` is what it takes for one operator, imports and CUDA's start
left out. A procedure that cannot run is a row with the reason.
"""

import argparse
import csv
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from opcost.databases.database import read_database
from opcost.devices.device import Device, open_device
from opcost.measuring.operands import Rotation, operand_sets
from opcost.models.conditions import inference_conditions
from opcost.study import Conditions
from opcost.tuples.operator_tuple import OperatorTuple

Call = Callable[[], object]
Answer = tuple[float, float | None]
"""Seconds and joules of a call."""

COLUMNS = ("operator", "peer", "needed_s", "time_s", "energy_j", "time_differs", "energy_differs")
_POLL_MS = 100
_AT_ONCE_S = 0.1


def of_torch(call: Call, device: Device, loop_s: float) -> Answer:
    """torch.utils.benchmark: the median of blocks of at least 0.2 s together."""
    from torch.utils.benchmark import Timer

    return Timer("call()", globals={"call": call}).blocked_autorange().median, None


def of_triton(call: Call, device: Device, loop_s: float) -> Answer:
    """triton.testing.do_bench: the median of calls in 0.1 s, each after the cache was cleared."""
    from triton.testing import do_bench

    return do_bench(call, return_mode="median") / 1e3, None


def of_a_loop(call: Call, device: Device, loop_s: float) -> Answer:
    """A plain loop: its time, and the mean of what nvidia-smi reads beside it."""
    number, elapsed_s = 1, 0.0
    while elapsed_s < _AT_ONCE_S:
        number *= 2
        elapsed_s = seconds_of(call, device, number)
    with Polling(device) as polling:
        calls, began_s = 0, time.perf_counter()
        while (elapsed_s := time.perf_counter() - began_s) < loop_s:
            seconds_of(call, device, number)
            calls += number
    return elapsed_s / calls, statistics.fmean(polling.watts) * elapsed_s / calls


PEERS: dict[str, Callable[[Call, Device, float], Answer]] = {
    "torch.utils.benchmark": of_torch,
    "triton.testing.do_bench": of_triton,
    "loop beside nvidia-smi": of_a_loop,
}


def seconds_of(call: Call, device: Device, number: int) -> float:
    """How long calls take until the device is done with them."""
    start_s = time.perf_counter()
    for _ in range(number):
        call()
    device.synchronise()
    return time.perf_counter() - start_s


class Polling:
    """nvidia-smi, which prints power while the block runs."""

    def __init__(self, device: Device) -> None:
        self.watts: list[float] = []
        query = ["--query-gpu=power.draw", "--format=csv,noheader,nounits", "-lms", str(_POLL_MS)]
        command = ["nvidia-smi", *query, "-i", str(device.uuid)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        printed, _rest = self._process.communicate()
        self.watts = [float(line) for line in printed.rpartition("\n")[0].splitlines()]


def compared(row: dict[str, Any], device: Device, loop_s: float) -> list[dict[str, Any]]:
    """The answers about the operator of a row, opcost's first."""
    operator_tuple = OperatorTuple.from_json(row["canonical_json"])
    same = {"operator": row["description"]}
    answers = [
        {
            **same,
            "peer": "opcost",
            "needed_s": row["device_time_s"],
            "time_s": row["time_s"],
            "energy_j": row["energy_j"],
        }
    ]
    for name, peer in PEERS.items():
        try:
            with inference_conditions():
                sets = operand_sets(operator_tuple, device, Rotation(0), 0)
                seconds_of(sets.calls[0], device, 1)
                start_s = time.perf_counter()
                time_s, energy_j = peer(sets.calls[0], device, loop_s)
        except Exception as error:  # whatever a peer lacks here
            answers.append({**same, "peer": name, "reason": f"{type(error).__name__}: {error}"})
            continue
        answers.append(
            {
                **same,
                "peer": name,
                "needed_s": time.perf_counter() - start_s,
                "time_s": time_s,
                "energy_j": energy_j,
                "time_differs": difference(time_s, row["time_s"]),
                "energy_differs": difference(energy_j, row["energy_j"]),
            }
        )
    return answers


def difference(value: float | None, ours: float | None) -> float | None:
    """Relative to opcost's."""
    return None if value is None or ours is None else value / ours - 1


def of_three(database: Path) -> Sequence[dict[str, Any]]:
    """The rows of the longest, the median and the shortest operator that were measured."""
    rows = read_database(database).to_pylist()
    measured = sorted((row for row in rows if row["time_s"]), key=lambda row: -row["time_s"])
    places = sorted({0, len(measured) // 2, len(measured) - 1}) if measured else []
    return [measured[place] for place in places]


def main() -> None:
    """Write the answers as CSV."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("database", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--loop-s", type=float, default=30.0)
    given = parser.parse_args()
    with given.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*COLUMNS, "reason"])
        writer.writeheader()
        for row in of_three(given.database):
            device = open_device(Conditions.from_json(row["conditions_json"]).target)
            for answer in compared(row, device, given.loop_s):
                print(answer)
                writer.writerow(answer)
                file.flush()


if __name__ == "__main__":
    main()
