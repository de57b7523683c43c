"""How long the kernels of whole models take, and what launching them costs, by PyTorch's profiler.

    python -m campaign.kernels results/local kernels.csv

A simulated GPU can be given such times (tests/simulated_cuda/README.md).
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from opcost.devices.device import Device
from opcost.devices.target_device import open_device
from opcost.measuring.workload import model_workload
from opcost.models import construction
from opcost.results_folder import MODELS, measurements
from opcost.study import Conditions, ModelDefinition
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

COLUMNS = ("model", "where", "name", "calls", "mean_us", "reason")
_ITERATIONS = 5


def times(
    definition: ModelDefinition, models: Path, conditions: Conditions, device: Device
) -> Iterator[dict[str, Any]]:
    """Calls in an iteration and mean microseconds: of each kernel, of each function of CUDA."""
    with construction.inference_conditions():
        module = construction.build(definition, models).to(device.torch_device)
        stated = definition.stating(construction.parameter_dtypes(module))
        inputs = construction.example_inputs(stated)
        workload = model_workload(module, inputs, device, conditions.measurement.cache_state)
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
    """Write the times of each model that was measured as CSV."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", type=Path, help="the folder of a target's measurements")
    parser.add_argument("output", type=Path)
    parser.add_argument("--models", type=Path, default=Path("config/models"), help="their code")
    given = parser.parse_args()
    with given.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for path in measurements(given.target, MODELS):
            [row] = pq.read_table(path, columns=["definition_json", "conditions_json"]).to_pylist()
            definition = ModelDefinition.from_json(row["definition_json"])
            conditions = Conditions.from_json(row["conditions_json"])
            same = {"model": definition.name}
            try:
                device = open_device(conditions.target)
                found = list(times(definition, given.models, conditions, device))
                if not any(each["where"] == "GPU" for each in found):
                    writer.writerow({**same, "reason": "the profiler has recorded no kernels"})
                writer.writerows({**same, **each} for each in found)
            except Exception as error:  # of the model, or of the profiler
                writer.writerow({**same, "reason": f"{type(error).__name__}: {error}"})
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
