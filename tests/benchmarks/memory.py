"""Is the peak memory that opcost counts that of the real model?

    PYTHONPATH=scripts python -m tests.benchmarks.memory [--gpu]

Each model runs once on this processor, on real tensors, inside `torch.profiler` with its memory
events: the most bytes that are allocated at once beyond those allocated before, at any time, and
when an operator ends, when its workspace is free again. Beside them is the peak of the activations
that `opcost explain --memory` counts from the calls, and its difference from the latter.

With --gpu, each runs on a GPU, or where there is none on the simulated one, and the peak is that of
PyTorch's allocator of GPU memory, which rounds up to 512 bytes, with workspaces of cuBLAS.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from opcost.costs.memory_use import memory_use
from opcost.costs.model_argument import find_model
from opcost.models.conditions import conditions
from opcost.models.construction import build
from opcost.models.definition import ModelDefinition
from opcost.models.iteration import iteration_of, prepare
from opcost.models.variants import Options
from opcost.tuples.extraction import extract_model_tuples
from torch.profiler import ProfilerActivity, profile

from tests.simulated_cuda.gpu import SimulatedGpu

BATCH = 2
MODELS = (
    *("alexnet", "vgg11", "resnet18", "resnet50", "densenet121", "mobilenet_v2"),
    *("efficientnet_b0", "convnext_tiny", "shufflenet_v2_x1_0", "vit_b_16", "swin_t"),
    "squeezenet1_1",
    "config/language_models/bert_base.yaml",
    "config/language_models/gpt2.yaml[prompt=512]",
    "config/models/llama_tiny.yaml",
    "config/models/llama_tiny_chat.yaml[cache=95]",
    "config/models/resnet18_training.yaml",
)


def profiled_peaks_bytes(definition: ModelDefinition, folder: Path | None) -> tuple[int, int]:
    """The most bytes that are allocated at once while the model runs, and when an operator ends."""
    module = build(definition, folder)
    run, inputs, _ = iteration_of(definition, module, folder)
    with conditions(definition.trains):
        prepare(run, inputs)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
            run(*inputs.args, **inputs.kwargs)
    live = peak = at_ends = 0
    ends_ns = 0
    results: Any = found.profiler.kineto_results
    for event in sorted(results.events(), key=lambda each: (each.start_ns(), -each.duration_ns())):
        if event.start_ns() >= ends_ns:  # between operators
            at_ends = max(at_ends, live)
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
        elif event.name().startswith("aten::") and event.start_ns() >= ends_ns:
            ends_ns = event.start_ns() + event.duration_ns()
    return peak, at_ends


def allocated_peak_bytes(definition: ModelDefinition, folder: Path | None) -> int:
    """The most bytes that PyTorch's allocator has at once on the GPU while the model runs."""
    module = build(definition, folder).to("cuda")
    device = torch.device("cuda")
    run, inputs, _ = iteration_of(definition, module, folder, device=device)
    inputs = inputs.to(device)
    with conditions(definition.trains):
        prepare(run, inputs)
        for _ in range(2):  # the first one allocates workspaces that stay
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            run(*inputs.args, **inputs.kwargs)
        return torch.cuda.max_memory_allocated() - before


def main() -> None:
    """Print the peaks of each model, and their difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", action="store_true")
    on_gpu = parser.parse_args().gpu
    if on_gpu and not torch.cuda.is_available():
        with tempfile.TemporaryDirectory() as folder:
            environment = SimulatedGpu(Path(folder) / "gpu").environment(memory_gb=16)
            command = [sys.executable, "-m", "tests.benchmarks.memory", "--gpu"]
            sys.exit(subprocess.run(command, env=os.environ | environment).returncode)
    for name in MODELS:
        options = Options(batches=() if "yaml" in name else (BATCH,))
        definition, folder = find_model(name, options)
        counted = memory_use(extract_model_tuples(definition, folder)).activation_peak_bytes
        if on_gpu:
            peak = allocated_peak_bytes(definition, folder)
            print(
                f"{name}: {counted / 1e6:.2f} MB counted; {peak / 1e6:.2f} MB allocated "
                f"({counted / peak - 1:+.1%})",
                flush=True,
            )
            continue
        peak, at_ends = profiled_peaks_bytes(definition, folder)
        print(
            f"{name}: {counted / 1e6:.2f} MB counted; {at_ends / 1e6:.2f} MB at the ends of "
            f"operators ({counted / at_ends - 1:+.1%}), {peak / 1e6:.2f} MB at any time"
        )


if __name__ == "__main__":
    main()
