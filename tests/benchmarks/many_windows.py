"""What windows cost: to begin and end one, to ask for its energy, to write it, and to keep it.

The sampler is a process that reads a simulated card (tests/simulated_nvml); the windows follow each
other in one that is around them all.

    PYTHONPATH=scripts python -m tests.benchmarks.many_windows [--windows 10000] [--length-s 0.0005]
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from opcost import power
from opcost.power.export import segments

from tests.simulated_nvml.card import build

GPU = "cuda:0"


def main() -> None:
    """Record windows with and without an output, and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--windows", type=int, default=10_000)
    parser.add_argument("--length-s", type=float, default=0.0005)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LD_LIBRARY_PATH"] = str(build(Path(folder)).parent)
        with power.Monitor([GPU]) as monitor:
            windows, edges_us = _loop(monitor, arguments)
            monitor._wait_for(time.monotonic())
            asked_s = time.perf_counter()
            told = sum(window.devices[GPU].energy is not None for window in windows)
            asked_us = (time.perf_counter() - asked_s) / len(windows) * 1e6
        print(f"not kept: begin and end {edges_us:.0f} us in the median, ask {asked_us:.0f} us")
        print(f"{told} of {len(windows)} windows have an energy")
        output = Path(folder) / "run.parquet"
        monitor = power.Monitor([GPU], output=output)
        _, edges_us = _loop(monitor, arguments)
        size = (monitor.recording.events_file.stat().st_size) / arguments.windows
        closed_s = time.perf_counter()
        monitor.close()
        closed_s = time.perf_counter() - closed_s
        listed_s = time.perf_counter()
        segments(output)
        listed_s = time.perf_counter() - listed_s
        each = output.stat().st_size / arguments.windows
        print(f"kept: begin and end {edges_us:.0f} us in the median, {size:.0f} bytes meanwhile")
        print(f"to close {closed_s:.1f} s, to read {listed_s:.1f} s, {each:.0f} bytes a window")


def _loop(
    monitor: power.Monitor, arguments: argparse.Namespace
) -> tuple[list[power.Window], float]:
    """Windows, and microseconds to begin and end one."""
    windows, edges_s = [], []
    with power.measure("loop", monitor=monitor):
        for _ in range(arguments.windows):
            begin_s = time.perf_counter()
            windows.append(power.start("step", monitor=monitor))
            begun_s = time.perf_counter()
            while (end_s := time.perf_counter()) < begun_s + arguments.length_s:
                pass
            windows[-1].stop()
            edges_s.append(begun_s - begin_s + time.perf_counter() - end_s)
    return windows, statistics.median(edges_s) * 1e6


if __name__ == "__main__":
    main()
