"""How much memory does a model use between two uses of the same, on this processor?

Models of torchvision run with opcost's heap, which keeps freed memory. Each page of 4 KiB remembers
the call that last used it, as an argument, weight or result. The distance of a page is how much
other memory has been used since: so much must a cache hold to have it still. Quartiles of the
calls' medians, for what a call reads (without weights) and where it writes; then, by size of the
result in narrower classes, the median over models of their medians.

    PYTHONPATH=scripts python -m tests.benchmarks.reuse resnet50:224 densenet121:128 ...
"""

import argparse
import itertools
import statistics

import numpy as np
import torch
import torchvision
from opcost.devices.target_device import open_device
from opcost.target import Target
from opcost.tuples.replay import tensors_in_tree
from torch.utils._python_dispatch import TorchDispatchMode

PAGE_BYTES = 4096
PASSES = 4  # the first ones fill the heap
MOST_PAGES = 2**20
SIZES = ((0, 1e5), (1e5, 1e6), (1e6, float("inf")))
NARROWER = (3e4, 1e5, 3e5, 1e6, 3e6, 1e7)
NEVER = float("inf")


class Uses(TorchDispatchMode):
    """Which call last used a page; of the calls since `calls` was cleared, size and distance."""

    def __init__(self, weights):
        super().__init__()
        self.weights, self.number, self.places = weights, 0, {}
        self.last = np.full(MOST_PAGES, -1)
        self.calls = {"inputs": [], "results": []}

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        results = operator(*args, **(kwargs or {}))
        given, made = memory((args, kwargs)), memory(results)
        writes = operator._schema.is_mutable
        if made and not writes and made.keys() <= given.keys():
            return results  # a view
        self.number += 1
        inputs = {start: each for start, each in given.items() if start not in self.weights}
        weights = {start: each for start, each in given.items() if start in self.weights}
        new = {start: each for start, each in made.items() if start not in given}
        self.use(weights)
        for kind, tensors in (("inputs", inputs), ("results", new)):
            if tensors:
                size = sum(each.untyped_storage().nbytes() for each in tensors.values())
                self.calls[kind].append((size, self.use(tensors)))
        return results

    def use(self, tensors):
        """Use memory now. The median distance until then, in bytes."""
        pages = [page for each in tensors.values() for page in self.pages(each.untyped_storage())]
        if not pages:
            return NEVER
        before = np.median(self.last[pages])
        since = np.count_nonzero(self.last[: len(self.places)] > before) * PAGE_BYTES
        self.last[pages] = self.number
        return NEVER if before < 0 else since

    def pages(self, storage):
        """The places of the storage's pages in `last`."""
        first = storage.data_ptr() // PAGE_BYTES
        beyond = (storage.data_ptr() + max(1, storage.nbytes()) - 1) // PAGE_BYTES + 1
        return [self.places.setdefault(page, len(self.places)) for page in range(first, beyond)]


def memory(tree):
    """Where memory starts -> a tensor in it."""
    return {each.untyped_storage().data_ptr(): each for each in tensors_in_tree(tree)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", help="name:size of the image")
    open_device(Target("cpu", 1, False))
    header = " | ".join(f"{low:g} to {high:g} B" for low, high in SIZES)
    print(f"MiB of other memory since the last use, quartiles (calls)\n\n| model | | {header} |")
    print("|---|---|---|---|---|")
    written = []
    for text in parser.parse_args().models:
        name, size = text.split(":")
        found = distances_in(name, int(size))
        for kind, calls in found.items():
            cells = map(quartiles, by_size(calls, SIZES))
            print(f"| `{name}`, {size} | {kind} | {' | '.join(cells)} |", flush=True)
        written.append(by_size(found["results"], list(itertools.pairwise(NARROWER))))
    print(
        "\n| size of the result | models | MiB of other memory since the last use |\n|---|---|---|"
    )
    for (low, high), classes in zip(
        itertools.pairwise(NARROWER), zip(*written, strict=True), strict=True
    ):
        medians = [statistics.median(each) for each in classes if each]
        middle = f"{statistics.median(medians) / 2**20:.1f}" if medians else ""
        print(f"| {low:g} to {high:g} B | {len(medians)} | {middle} |")


def distances_in(name, size):
    """`inputs` and `results` -> bytes and median distance of each call of a pass."""
    model = torchvision.models.get_model(name).eval()
    held = (*model.parameters(), *model.buffers())
    uses = Uses({each.untyped_storage().data_ptr() for each in held})
    image = torch.randn(1, 3, size, size)
    with torch.inference_mode(), uses:
        for _ in range(PASSES):
            uses.calls = {kind: [] for kind in uses.calls}
            model(image)
    return uses.calls


def by_size(calls, sizes):
    return [[far for size, far in calls if low <= size < high] for low, high in sizes]


def quartiles(distances):
    if len(distances) < 2:
        return "" if not distances else f"{distances[0] / 2**20:.1f} (1)"
    found = statistics.quantiles(distances, n=4, method="inclusive")
    return ", ".join(f"{each / 2**20:.1f}" for each in found) + f" ({len(distances)})"


if __name__ == "__main__":
    main()
