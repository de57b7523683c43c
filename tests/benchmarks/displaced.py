"""What a core's own cache loses between two calls: an operator's code, and its workspaces.

Two tables. The first times a convolution that writes its weights anew in another layout, with that
workspace moving through memory; the second times `batch_norm` right after something else. On this
CPU, one thread, undisturbed moments only.

    PYTHONPATH=scripts python -m tests.benchmarks.displaced
"""

import argparse
import dataclasses
import itertools
import math
import random
import statistics
import subprocess
import sys

import torch
from opcost.devices.target_device import open_device
from opcost.measuring.operands import Rotation, operand_sets
from opcost.measuring.workload import OperatorWorkload
from opcost.models.construction import inference_conditions
from opcost.target import Target
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec

from tests.benchmarks.sum_and_whole import SETTINGS, seconds

ROUNDS = 15
CALLS = 16
NORMS = [(256, 14), (512, 7), (64, 56)]
KERNEL = 3
CONVOLUTIONS = [(512, 512, 3, 7, 1), (512, 512, 3, 14, 2), (1024, 2048, 1, 14, 2)]
SPANS_MIB = (0, 8, 32, 128, 512)
WEIGHTS_BYTES = 4 * 10**8
GOLDEN_RATIO = 0.6180339887498949
PAGE_BYTES = 4096
SHELTER_BYTES = 2**20
WALL_BYTES = 2**16


class Spacers:
    """Sizes of blocks to hold during one call each, so that the call's own lie elsewhere each time.

    What a call allocates, its results and its workspaces (a convolution writes its weights anew in
    another layout), follows the held block in the heap. Sizes are spread evenly over `span_bytes`
    (multiples of the golden ratio, modulo one), so that memory comes again only after about as much
    other memory was used. Freed memory must stay with the process: `keep_freed_memory`.
    """

    def __init__(self, span_bytes):
        # Small blocks that live longer than a call go here, and do not divide the span.
        shelter = torch.empty(SHELTER_BYTES, dtype=torch.uint8)
        wall = torch.empty(WALL_BYTES, dtype=torch.uint8)
        # Used once now: the first use of memory is slow.
        span = torch.empty(span_bytes, dtype=torch.uint8).fill_(0)
        self._held = [wall, *plug_holes(span)]
        del shelter, span
        pages = span_bytes // PAGE_BYTES
        positions = (turn * GOLDEN_RATIO % 1.0 for turn in itertools.count())
        self.sizes = (int(position * pages) * PAGE_BYTES for position in positions)


def plug_holes(span):
    """Blocks that fill what is free outside of `span`: a call would find it each time."""
    plugs = []
    end = span.data_ptr() + span.nbytes
    size, room = span.nbytes // 2, span.nbytes  # no more, should the heap grow downwards
    while size >= SHELTER_BYTES and size <= room:
        plug = torch.empty(size, dtype=torch.uint8)
        if plug.data_ptr() < end:
            plugs.append(plug)
            room -= size
        else:
            size //= 2
    return plugs


class Spaced:
    """A workload whose calls find other memory for results and workspaces than the last."""

    def __init__(self, workload, span_bytes):
        self._workload = workload
        self.rotation = workload.rotation
        self._sizes = Spacers(span_bytes).sizes

    def run(self, iterations):
        """Each call with another block held before it."""
        for _ in range(iterations):
            spacer = torch.empty(next(self._sizes), dtype=torch.uint8)
            self._workload.run(1)
            del spacer


def norm_after(channels, size, device, watch):
    """Microseconds of batch_norm after each kind of call, by name."""
    generator = random.Random(0)
    moved = torch.randn(device.core_cache_bytes)  # four bytes each
    target = torch.empty_like(moved)
    images = [torch.randn(1, channels, size, size) for _ in range(4)]
    small = torch.randn(1, 8, 4, 4)
    turn = itertools.cycle(images)
    footprint = max(2, WEIGHTS_BYTES // (channels**2 * KERNEL**2 * 4))
    weights = itertools.cycle(
        [torch.randn(channels, channels, KERNEL, KERNEL) for _ in range(footprint)]
    )

    def norm(channels):
        ones = torch.ones(channels)
        weight, bias, mean, variance = (ones.clone() for _ in range(4))
        return lambda image: torch.batch_norm(
            image, weight, bias, mean, variance, False, 0.1, 1e-5, True
        )

    large, tiny = norm(channels), norm(small.shape[1])

    def nothing():
        return next(turn)

    def code():
        image = next(turn)
        target.copy_(moved)
        image.sum()
        return image

    def data():
        target.copy_(moved)
        tiny(small)
        return next(turn)

    def both():
        target.copy_(moved)
        return next(turn)

    def producer():
        return torch.conv2d(next(turn), next(weights), padding=KERNEL // 2)

    before = {
        "in a loop": nothing,
        "code evicted": code,
        "data evicted": data,
        "both": both,
        "its convolution": producer,
    }
    times = {name: [] for name in before}
    for _ in range(ROUNDS):
        for name in generator.sample(list(before), len(before)):
            watch.look()
            found = []
            for _ in range(CALLS):
                image = before[name]()
                found.append(device.time(lambda image=image: large(image)).device_s)
            if watch.look():
                times[name] += found[CALLS // 2 :]
    return {name: statistics.median(values or [math.nan]) * 1e6 for name, values in times.items()}


def convolution_s(shape, span_bytes, device, watch):
    """Seconds of a convolution whose workspaces move through so many bytes."""
    channels, results, kernel, size, stride = shape
    operator_tuple = OperatorTuple(
        "aten.conv2d.default",
        (
            ("input", TensorSpec((1, channels, size, size), "float32")),
            ("padding", (kernel // 2, kernel // 2)),
            ("stride", (stride, stride)),
            ("weight", TensorSpec((results, channels, kernel, kernel), "float32")),
        ),
    )
    rotation = Rotation(WEIGHTS_BYTES, ("weight",))
    operands = operand_sets(operator_tuple, device, rotation, 0)
    # Results that are kept would stand in the way.
    workload = OperatorWorkload(dataclasses.replace(operands, kept_results=0))
    workload.run(2)
    if span_bytes:
        workload = Spaced(workload, span_bytes)
    return seconds(workload, device, watch, SETTINGS)[0]


def in_a_process_of_its_own(index, span_mib, baseline_s):
    """The same, on a heap that nothing else has used."""
    task = ["--convolution", str(index), str(span_mib), str(baseline_s)]
    command = [sys.executable, "-m", "tests.benchmarks.displaced", *task]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    """Print the two tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--convolution", nargs=3, metavar=("INDEX", "SPAN_MIB", "BASELINE_S"))
    arguments = parser.parse_args()
    device = open_device(Target("cpu", 1, False))
    if arguments.convolution:
        index, span_mib, baseline_s = arguments.convolution
        watch = device.watch(float(baseline_s))
        with inference_conditions():
            shape, span_bytes = CONVOLUTIONS[int(index)], int(span_mib) * 2**20
            print(convolution_s(shape, span_bytes, device, watch))
        return
    baseline_s = device.baseline_s()
    print(f"{device.model_name}, torch {torch.__version__}, one thread, microseconds\n")
    print("| conv2d, workspaces through | " + " | ".join(f"{s} MiB" for s in SPANS_MIB) + " |")
    print("|---" * (1 + len(SPANS_MIB)) + "|")
    for index, (channels, results, kernel, size, stride) in enumerate(CONVOLUTIONS):
        times_s = [in_a_process_of_its_own(index, span, baseline_s) for span in SPANS_MIB]
        cells = " | ".join(f"{time_s * 1e6:.0f}" for time_s in times_s)
        name = f"1x{channels}x{size}x{size}, {results}x{channels}x{kernel}x{kernel} /{stride}"
        print(f"| {name} | {cells} |", flush=True)
    print()
    watch = device.watch(baseline_s)
    with inference_conditions():
        for index, (channels, size) in enumerate(NORMS):
            times = norm_after(channels, size, device, watch)
            if not index:
                print("| batch_norm after | " + " | ".join(times) + " |")
                print("|---" * (1 + len(times)) + "|")
            cells = " | ".join(f"{value:.1f}" for value in times.values())
            print(f"| 1x{channels}x{size}x{size} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
