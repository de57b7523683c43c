"""How long does a core take to settle after a workload?

After each workload: how much longer the sentinel's convolution takes, and a loop of Python that
needs no memory, than when the core has settled; medians of many repetitions, by the time since the
workload ended. A cold cache slows the first few calls; a slower clock slows both, for as long as it
lasts.

    PYTHONPATH=scripts python -m tests.benchmarks.settling --repetitions 100
"""

import argparse
import itertools
import os
from time import perf_counter

import numpy as np
import torch
import torchvision
from opcost.devices.processor import CpuDevice

LIMITS_MS = (0, 0.5, 1, 2, 4, 6, 8, 10)
SETTLED_MS = (12, 20)
COUNTS = range(3000)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=100)
    repetitions = parser.parse_args().repetitions
    torch.set_num_threads(1)
    CpuDevice()
    spans = [f"{low} to {high} ms" for low, high in itertools.pairwise(LIMITS_MS)]
    print(f"| after | timed | {' | '.join(spans)} |")
    print("|---" * (2 + len(spans)) + "|")
    with torch.inference_mode():
        for name, workload in workloads():
            for timed, call in (("convolution", convolution()), ("loop", loop)):
                found = settling(workload, call, repetitions)
                print(f"| {name} | {timed} | {' | '.join(f'{each:+.1%}' for each in found)} |")


def workloads():
    image, weight = torch.randn(1, 128, 28, 28), torch.randn(128, 128, 3, 3)
    yield "a convolution, 20 times", lambda: [torch.conv2d(image, weight) for _ in range(20)]
    source = torch.randn(2**24)
    target = torch.empty_like(source)
    yield "a copy of 64 MiB", lambda: target.copy_(source)
    for name in ("resnet50", "mobilenet_v2", "alexnet", "vit_b_32"):
        model = getattr(torchvision.models, name)().eval()
        picture = torch.randn(1, 3, 224, 224)
        yield name, lambda model=model, picture=picture: model(picture)


def convolution():
    image, weight = torch.randn(1, 64, 28, 28), torch.randn(64, 64, 3, 3)
    return lambda: torch.conv2d(image, weight, padding=1)


def loop():
    for _ in COUNTS:
        pass


def settling(workload, call, repetitions):
    """How much longer than settled, for each span of time since the workload."""
    for _ in range(5):
        workload()
    longer = []
    for _ in range(repetitions):
        workload()
        began, moments, times = perf_counter(), [], []
        while not moments or moments[-1] < SETTLED_MS[1]:
            start = perf_counter()
            call()
            end = perf_counter()
            moments.append((start - began) * 1e3)
            times.append(end - start)
        when, seconds = np.array(moments), np.array(times)
        settled = np.median(seconds[(when >= SETTLED_MS[0]) & (when < SETTLED_MS[1])])
        spans = itertools.pairwise(LIMITS_MS)
        within = [seconds[(when >= low) & (when < high)] for low, high in spans]
        longer.append([np.median(each) / settled - 1 if len(each) else np.nan for each in within])
    return np.nanmedian(longer, axis=0)


if __name__ == "__main__":
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    main()
