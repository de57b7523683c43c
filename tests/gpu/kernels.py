"""How long the kernels of whole models take, and what launching them costs, by PyTorch's profiler.

    PYTHONPATH=scripts python -m tests.gpu.kernels results/database.parquet kernels.csv MODEL...

A simulated GPU can be given such times (tests/simulated_cuda/README.md).
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from opcost.costs.model_argument import find_model
from opcost.databases.database import read_database
from opcost.devices.device import Device, open_device
from opcost.measuring.workload import model_workload
from opcost.models.conditions import inference_conditions
from opcost.models.construction import build
from opcost.models.definition import ModelDefinition
from opcost.models.iteration import iteration_of
from opcost.study import Conditions
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

COLUMNS = ("model", "where", "name", "calls", "mean_us", "reason")
_ITERATIONS = 5


def times(
    definition: ModelDefinition, code: Path | None, conditions: Conditions, device: Device
) -> Iterator[dict[str, Any]]:
    """Calls in an iteration and mean microseconds: of each kernel, of each function of CUDA."""
    with inference_conditions():
        module = build(definition, code).to(device.torch_device)
        run, inputs, _ = iteration_of(definition, module, code, device=device.torch_device)
        workload = model_workload(run, inputs, device, conditions.measurement.cache_state)
        workload.run(workload.rotation)
        device.synchronise()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
            workload.run(_ITERATIONS)
            device.synchronise()
    for event in recorded.key_averages():
        on_gpu = event.device_type == DeviceType.CUDA
        if on_gpu or event.key.startswith("cuda"):
            total_us = event.self_device_time_total if on_gpu else event.self_cpu_time_total
            yield {
                "where": "GPU" if on_gpu else "host",
                "name": event.key,
                "calls": event.count / _ITERATIONS,
                "mean_us": total_us / event.count,
            }


def main() -> None:
    """Write the times of models as CSV, under the conditions of the first row of a database."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("database", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("models", nargs="+", help="as opcost explain takes them")
    given = parser.parse_args()
    [text, *_] = read_database(given.database, ["conditions_json"])["conditions_json"].to_pylist()
    conditions = Conditions.from_json(text)
    with given.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for name in given.models:
            try:
                device = open_device(conditions.target)
                found = list(times(*find_model(name), conditions, device))
                if not any(each["where"] == "GPU" for each in found):
                    writer.writerow({"model": name, "reason": "the profiler recorded no kernels"})
                writer.writerows({"model": name, **each} for each in found)
            except Exception as error:  # of the model, or of the profiler
                writer.writerow({"model": name, "reason": f"{type(error).__name__}: {error}"})
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
