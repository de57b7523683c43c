"""Which cache state makes the sum over operators explain the whole model? On this CPU, one thread.

Each operator tuple is timed in the three cache states, in shuffled order, each time in a process of
its own (forked from one that has run the sentinel alone, with a heap as in a job of a study). The
whole model is timed in other processes, before, after and between them: in a loop (its weights
stay in a last-level cache that is large enough) and rotating through copies of itself (they come
from memory). Only undisturbed batches count. Ratios are sum / whole; `overhead` adds what calls
cost beyond their operators.

    PYTHONPATH=scripts python -m tests.benchmarks.sum_and_whole [--batch 8] [MODEL ...]
"""

import argparse
import dataclasses
import json
import mmap
import multiprocessing
import random
import statistics
import subprocess
import sys

import torch
from opcost.costs.evicted_code import evicted_code
from opcost.devices.disturbance import find_baseline_s
from opcost.devices.processor import CpuDevice
from opcost.devices.target_device import open_device
from opcost.measuring import workload
from opcost.measuring.overhead import sample_overhead
from opcost.measuring.timing import calibrate, measure_time, timer_of, warm_up
from opcost.models import construction
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.rows.overhead_samples import overhead_columns
from opcost.study import default_measurement
from opcost.target import Target
from opcost.tuples.extraction import extract_model_tuples

MODELS = [
    "alexnet",
    "resnet18",
    "resnet50",
    "resnext50_32x4d",
    "squeezenet1_1",
    "googlenet",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mnasnet1_0",
    "shufflenet_v2_x1_0",
    "efficientnet_b0",
    "regnet_y_400mf",
    "vit_b_32",
    "swin_t",
    "convnext_tiny",
]
FORK = multiprocessing.get_context("fork")
STATES = ("cold", "model", "warm")
VISITS = 3
TRIES = 10
PROCESSES = 6
BASELINE_WITHIN_S = 20.0
SETTINGS = dataclasses.replace(
    default_measurement(),
    warm_up_s=0.02,
    batch_s=0.005,
    min_batches=8,
    time_relative_ci=0.02,
    min_time_s=0.04,
    max_time_s=0.5,
)
WHOLE = dataclasses.replace(SETTINGS, batch_s=0.02, warm_up_s=0.1, max_time_s=4.0)


class OneBlock(CpuDevice):
    """A processor whose operands lie in one block of memory, which its forks use one by one."""

    def __init__(self, size):
        super().__init__()
        memory = mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._block = torch.frombuffer(memory, dtype=torch.uint8)
        self._used = 0

    def allocate(self, elements, dtype):
        """The next bytes of the block."""
        start = self._used
        self._used += -(-elements * dtype.itemsize // 512) * 512
        return self._block[start : start + elements * dtype.itemsize].view(dtype)


def seconds(iterated, device, watch, settings):
    """Seconds per iteration by opcost's protocol, and whether enough batches were undisturbed."""
    timer = timer_of(iterated, device, settings.batch_s)
    iterations = calibrate(timer, settings.batch_s)
    warm_up(iterated, device, iterations, settings.warm_up_s)
    for _ in range(TRIES):
        timing = measure_time(timer, watch, iterations, settings)
        if not timing.counts_disturbed:
            break
    return timing.estimate.value, not timing.counts_disturbed


def in_a_fork(function, *arguments):
    """What the function returns, called in a forked process."""
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=lambda: sender.send(function(*arguments)))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    finally:
        process.join()


def operator_seconds(record, device, watch, state):
    """Seconds per call of an operator tuple, and whether enough batches were undisturbed."""
    with construction.inference_conditions():
        iterated = workload.operator_workload(record, device, state, SETTINGS.seed)
        return seconds(iterated, device, watch, SETTINGS)


class Whole:
    """The whole model, measured on request by another process."""

    def __init__(self, definition, baseline_s, cache_state):
        task = [definition.to_json(), str(baseline_s), cache_state]
        command = [sys.executable, __file__, "--serve", *task]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.visits = []

    def visit(self):
        """Measure once more, if the machine leaves the model alone."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        value, undisturbed = json.loads(self._process.stdout.readline())
        if undisturbed:
            self.visits.append(value)

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


def serve(definition, baseline_s, cache_state):
    """Answer each line with a measurement of the whole model in that cache state."""
    device = open_device(Target("cpu", 1, False))
    watch = device.watch(baseline_s)
    with construction.inference_conditions():
        torch.manual_seed(0)
        module, inputs = construction.build(definition), construction.example_inputs(definition)
        iterated = workload.model_workload(module, inputs, device, cache_state)
        for _ in sys.stdin:
            print(json.dumps(seconds(iterated, device, watch, WHOLE)), flush=True)


def compare(definition, device, watch, generator):
    """Sums over the operators by cache state, measurements of the whole, and what was disturbed."""
    tuples = in_a_fork(extract_model_tuples, definition)
    counts = tuples.call_counts()
    kernels = [record for record in tuples.tuples if record.launches_kernel]
    generator.shuffle(kernels)
    wholes = [Whole(definition, watch.baseline_s, state) for state in ("warm", "model")]
    sums, disturbed = dict.fromkeys(STATES, 0.0), 0
    every = max(1, len(kernels) // VISITS)
    for index, record in enumerate(kernels):
        if index % every == 0:
            for whole in wholes:
                whole.visit()
        for state in generator.sample(STATES, len(STATES)):
            value, undisturbed = in_a_fork(operator_seconds, record, device, watch, state)
            sums[state] += counts[record.operator_tuple.tuple_id] * value
            disturbed += not undisturbed
    for whole in wholes:
        whole.visit()
        whole.close()
    visits = [whole.visits for whole in wholes]
    return sums, visits, tuples, disturbed / len(kernels) / len(STATES)


def overhead_s(overhead, tuples, device):
    """What the calls of a model cost beyond their operators."""
    displaced = sum(each.more for each in evicted_code(tuples, device.core_cache_bytes))
    views = sum(not tuples.tuples[call.position].launches_kernel for call in tuples.calls)
    return (
        (len(tuples.calls) - displaced) * overhead["call_overhead_s"]
        + displaced * overhead["displaced_call_overhead_s"]
        + views * overhead["view_call_overhead_s"]
    )


def main():
    """Print a row for each model, and the errors over all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--caches", type=float, default=workload.CACHES_PER_FOOTPRINT)
    parser.add_argument("--serve", nargs=3, metavar=("DEFINITION", "BASELINE_S", "CACHE_STATE"))
    arguments = parser.parse_args()
    if arguments.serve:
        definition, baseline_s, cache_state = arguments.serve
        serve(ModelDefinition.from_json(definition), float(baseline_s), cache_state)
        return
    workload.CACHES_PER_FOOTPRINT = arguments.caches
    open_device(Target("cpu", 1, False))
    device = OneBlock(int(arguments.caches * CpuDevice().last_level_cache_bytes * 1.2) + 2**30)
    watch = device.watch(find_baseline_s(BASELINE_WITHIN_S))
    samples = [in_a_fork(sample_overhead, device, watch) for _ in range(PROCESSES)]
    overhead = overhead_columns(samples)
    generator = random.Random(0)
    columns = [*STATES, "model + overhead"]
    errors = {(whole, column): [] for whole in ("loop", "copies") for column in columns}
    print(f"{device.model_name}, torch {torch.__version__}, batch {arguments.batch}, one thread")
    print(f"sentinel: {watch.baseline_s * 1e6:.1f} us")
    for kind in ("call", "displaced_call", "view_call"):
        low, high = overhead[f"{kind}_overhead_ci_low_s"], overhead[f"{kind}_overhead_ci_high_s"]
        print(f"{kind}: {low * 1e6:.1f} to {high * 1e6:.1f} us")
    print()
    header = " | ".join(f"{whole} (range) | " + " | ".join(columns) for whole in ("loop", "copies"))
    print(f"| model | calls | {header} | disturbed |")
    print("|---" * (3 + 2 * (1 + len(columns))) + "|", flush=True)
    for name in arguments.models:
        shape = (arguments.batch, 3, arguments.size, arguments.size)
        definition = ModelDefinition(name=name, model=name, inputs=(InputSpec(shape),))
        sums, visits, tuples, disturbed = compare(definition, device, watch, generator)
        if not all(visits):
            print(f"| {name} | the machine left the whole model never alone |", flush=True)
            continue
        sums["model + overhead"] = sums["model"] + overhead_s(overhead, tuples, device)
        cells = []
        for whole, found in zip(("loop", "copies"), visits, strict=True):
            whole_s = statistics.median(found)
            spread = max(found) / min(found) - 1
            cells.append(f"{whole_s * 1e3:.2f} ms ({spread:.0%})")
            for column in columns:
                errors[whole, column].append(abs(sums[column] / whole_s - 1))
                cells.append(f"{sums[column] / whole_s:.3f}")
        print(
            f"| {name} | {len(tuples.calls)} | {' | '.join(cells)} | {disturbed:.0%} |", flush=True
        )
    for (whole, column), found in errors.items():
        middle, worst = statistics.median(found), max(found)
        print(f"{column} against {whole}: median {middle:.1%}, worst {worst:.1%}")


if __name__ == "__main__":
    main()
