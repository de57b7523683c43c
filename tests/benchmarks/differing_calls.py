"""Which models of torchvision launch other kernels on a device than were extracted?

    PYTHONPATH=scripts python -m tests.benchmarks.differing_calls [PATTERN ...] [--device cpu]
        [--batch-size 2] [--dtype float32] [--detection]

Sets up each model as a study does, on the GPU, or on a simulated one if there is none. That one
computes no values: detection models, whose sizes depend on them, are left out unless named by
`--detection`, and differ or fail for that reason alone.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from opcost.devices.target_device import open_device
from opcost.measuring.subjects import ModelSubject
from opcost.models import zoo
from opcost.models.construction import inference_conditions, without_initialisation
from opcost.models.definition import ModelDefinition
from opcost.study import Conditions, default_measurement
from opcost.target import Target
from opcost.tuples.extraction import extract_model_tuples

from tests.simulated_cuda.gpu import SimulatedGpu
from tests.stations import station_of


def print_models(definitions: Iterable[ModelDefinition], device: str) -> None:
    """A line for each model, followed by one for each differing tuple."""
    target = Target(device, torch.get_num_threads(), False)
    once = replace(default_measurement(), cache_state="warm")
    station = station_of(open_device(target), Conditions(target, once))
    for definition in definitions:
        start_s = time.monotonic()
        extracted = extract_model_tuples(definition)
        begin_s = time.monotonic()
        weights = (
            nullcontext if zoo.family(definition.model) == "detection" else without_initialisation
        )
        try:
            with inference_conditions(), weights():
                set_up = ModelSubject(definition, expected=extracted).set_up(station)
            calls = set_up.columns["differing_calls"]
        except Exception as error:
            print(f"{definition.name}: failed: {error}".splitlines()[0], flush=True)
            continue
        end_s = time.monotonic()
        spent = f"extraction {begin_s - start_s:.1f} s, device {end_s - begin_s:.1f} s"
        verdict = "differs" if calls else "equal"
        print(f"{definition.name}: {verdict} ({len(extracted.calls)} calls; {spent})")
        print(*(f"    {call}" for call in calls), sep="\n", end="\n" if calls else "", flush=True)
        del set_up


def main() -> None:
    """Parse the command line, and do it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("patterns", nargs="*", default=["*"], metavar="PATTERN")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--detection", action="store_true", help="detection models only")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.device == "cuda" and not torch.cuda.is_available():
        with tempfile.TemporaryDirectory() as folder:
            gpu = SimulatedGpu(Path(folder) / "gpu")
            command = [sys.executable, "-m", __spec__.name, *sys.argv[1:]]
            subprocess.run(command, env=gpu.environment(kernel_scale=0.001), check=True)
        return
    every = list(zoo.official_inputs())
    families = (
        ["detection"] if given.detection else sorted({*every} - {"detection", "quantization"})
    )
    chosen = zoo.select(families, given.patterns, given.batch_size).values()
    print_models([replace(each, dtype=given.dtype) for each in chosen], given.device)


if __name__ == "__main__":
    main()
