"""What an hour of recording costs: bytes, memory, and the processor time of the sampler.

The sampler reads a simulated card (tests/simulated_nvml) on its virtual clock, as fast as it can,
and writes every second of that clock; then the recording becomes a table. The share of a processor
is the sampler's processor time divided by the hour: waiting between readings costs nothing.

    PYTHONPATH=scripts python -m tests.benchmarks.long_recording [--hours 1] [--period-s 0.02]
"""

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

from opcost.energy.nvml import NvmlMeter
from opcost.power import export, sampler
from opcost.power.recording import Recording
from opcost.power.sources import Source, described

from tests.simulated_nvml.card import UUID, Card, build


class VirtualTime:
    """The module `time`, on the clock of the card."""

    def __init__(self, card: Card) -> None:
        self.monotonic = card.now_s


def main() -> None:
    """Record, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--period-s", type=float, default=0.02)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        card = Card(build(Path(folder)))
        card.reset()
        output = Path(folder) / "run.parquet"
        recording = Recording(export.recording_beside(output))
        recording.folder.mkdir()
        sources = [Source("cuda:0", NvmlMeter(UUID))]
        about = {"sources": described(sources), "missing": {}, "period_s": arguments.period_s}
        recording.begin({**about, "labels": {}})
        sampler.time = VirtualTime(card)
        before_mib, began_s = _memory_mib(), time.process_time()
        readings = _record(sampler.Sampler(recording, sources, os.getpid()), card, arguments)
        spent_s = time.process_time() - began_s
        size_mib = recording.samples_file.stat().st_size / 2**20
        grown_mib = _memory_mib() - before_mib
        began_s = time.process_time()
        export.finish(output)
        made_s, table_mib = time.process_time() - began_s, output.stat().st_size / 2**20
        share = spent_s / (3600 * arguments.hours)
        each_us = spent_s / readings * 1e6
        print(f"{readings} readings in {arguments.hours:g} h of the card's clock")
        print(
            f"sampler: {share:.2%} of a processor ({each_us:.0f} us a reading), {grown_mib:.1f} MiB"
        )
        print(f"recording: {size_mib:.1f} MiB")
        print(f"table: {table_mib:.1f} MiB, {made_s:.1f} s, {_memory_mib() - before_mib:.0f} MiB")


def _record(running: sampler.Sampler, card: Card, arguments: argparse.Namespace) -> int:
    readings = round(3600 * arguments.hours / arguments.period_s)
    each_flush = round(1 / arguments.period_s)
    for number in range(readings):
        if number % (30 * each_flush) == 0:
            card.run(20, 300)
        running.read()
        if number % each_flush == 0:
            running.flush()
        card.sleep(arguments.period_s)
    running.flush()
    return readings


def _memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


if __name__ == "__main__":
    main()
