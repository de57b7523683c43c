"""How far is the estimate of offloading from the truth? On the simulated GPU.

Measures models and copies from the host in one study. For each budget, the weights that `opcost
explain --offload` chooses are then really copied in before their module runs, and the simulated GPU
tells the seconds and joules of a pass. Its copies and kernels do not overlap. The host really moves
the bytes, so the simulated link must be slower than its memory for copies that it waits for.

    PYTHONPATH=scripts python -m tests.benchmarks.offload FOLDER [--model alexnet_224 ...]
        [--share 0.3 0.6 0.9] [--set pageable_gb_per_s=1 ...]

FOLDER is made, and holds the study. With an existing one, the run is continued, and read. Budgets
hold inputs, activations and a share of the weights, or the least that is possible.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from opcost.costs.explanation import explain
from opcost.costs.offload import offload
from opcost.costs.offload_memory import offload_memory
from opcost.devices.target_device import open_device
from opcost.models import construction
from opcost.models.configs import load_model
from opcost.results_folder import extraction
from opcost.target import Target
from opcost.tuples.model_tuples import read_model_tuples

from tests.checkout import Checkout
from tests.simulated_cuda.gpu import SimulatedGpu

MODULE = "tests.benchmarks.offload"
PASSES = 4
TARGET = Target("cuda", 1, False)


def make_study(folder: Path, models: list[str]) -> None:
    """A copy of the repository with a configuration for these models and the copies."""
    root = Checkout(folder).root
    target = {"device": "cuda", "threads": 1, "tf32": False}
    config = {"models": [*models, "copies_to_device"], "targets": {"gpu": target}, "rounds": 1}
    (root / "config/offload.yaml").write_text(json.dumps(config))


def print_truth(folder: Path, asked: dict) -> None:
    """Seconds and joules of a pass, without and with these weights copied in: on the simulated GPU.

    `asked` are the model, the memory of the host, and the names of the weights by module.
    """
    card = ctypes.CDLL(None)
    for name in ("seconds", "joules"):
        getattr(card, f"simulated_cuda_{name}").restype = ctypes.c_double
    device = open_device(TARGET)
    definition = load_model(asked["model"], folder / "config/models")
    copies = 0

    def cost() -> list[float]:
        run()
        device.synchronise()
        before = card.simulated_cuda_seconds(), card.simulated_cuda_joules()
        for _ in range(PASSES):
            run()
        device.synchronise()
        after = card.simulated_cuda_seconds(), card.simulated_cuda_joules()
        return [(new - old) / PASSES for old, new in zip(before, after, strict=True)]

    with construction.conditions(trained=False):
        net = construction.build(definition, folder).to(device.torch_device)
        args, kwargs = construction.example_inputs(definition).to(device.torch_device)

        def run() -> None:
            net(*args, **kwargs)

        plain = cost()
        tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
        for path, names in asked["copied"]:
            pairs = []
            for name in names:
                on_host = tensors[name].data.cpu()
                on_host = on_host.pin_memory() if asked["memory"] == "pinned" else on_host
                pairs.append((tensors[name].data, on_host))

            def copy_in(*_, pairs=pairs) -> None:
                nonlocal copies
                for on_device, on_host in pairs:
                    on_device.copy_(on_host, non_blocking=True)
                    copies += 1

            net.get_submodule(path).register_forward_pre_hook(copy_in)
        offloaded = cost()
    found = {"plain": plain, "offloaded": offloaded, "copies": copies // (PASSES + 1)}
    json.dump(found, sys.stdout)


def true_cost(folder: Path, environment: dict[str, str], asked: dict) -> dict:
    """What `print_truth` prints."""
    command = [sys.executable, "-W", "ignore", "-m", MODULE, str(folder), "--truth"]
    command.append(json.dumps(asked))
    ran = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout)


def errors_at(folder: Path, environment: dict[str, str], model: str, share: float) -> list[dict]:
    """The estimate and the truth under a budget, for each memory of the host."""
    extracted = read_model_tuples(extraction(model, folder / "results"))
    memory = offload_memory(extracted, 2**60)
    budget = memory.budget_bytes - memory.room_bytes + round(share * memory.weight_bytes)
    memory = offload_memory(extracted, max(budget, memory.least_bytes))
    explanations = explain(extracted, [folder / "results/database.parquet"])
    [answer] = offload(memory, explanations)
    found = []
    for each in answer.found:
        groups = [copied.group for copied in each.copied]
        names = [[group.module_path, [w.name for w in group.weights]] for group in groups]
        asked = {"model": model, "memory": each.memory, "copied": names}
        truth = true_cost(folder, environment, asked)
        copies_s, copies_j = (
            new - old for old, new in zip(truth["plain"], truth["offloaded"], strict=True)
        )
        found.append(
            {
                "model": model,
                "budget MB": memory.budget_bytes / 1e6,
                "used MB": (memory.budget_bytes - memory.room_bytes + answer.choice.device_bytes)
                / 1e6,
                "memory": each.memory,
                "copies": f"{truth['copies']}/{sum(len(names) for _, names in names)}",
                "copies ms": 1e3 * each.copies_time.value,
                "true ms": 1e3 * copies_s,
                "error": each.copies_time.value / copies_s - 1,
                "energy error": each.copies_energy.value / copies_j - 1,
                "pass ms": 1e3 * each.sequential_time.value,
                "true pass ms": 1e3 * truth["offloaded"][0],
                "pass error": each.sequential_time.value / truth["offloaded"][0] - 1,
                "pass energy error": each.sequential_energy.value / truth["offloaded"][1] - 1,
            }
        )
    return found


def main() -> None:
    """Run the study, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", nargs="+", default=["alexnet_224", "resnet50_b32"])
    parser.add_argument("--share", nargs="+", type=float, default=[0.0, 0.3, 0.6, 0.9])
    parser.add_argument("--set", nargs="*", default=["pageable_gb_per_s=1"], metavar="NAME=VALUE")
    parser.add_argument("--truth", type=json.loads, help="in a process on the simulated GPU")
    given = parser.parse_args()
    if given.truth:
        print_truth(given.folder, given.truth)
        return
    if not given.folder.exists():
        make_study(given.folder, given.model)
    with tempfile.TemporaryDirectory() as libraries:
        gpu = SimulatedGpu(Path(libraries) / "gpu")
        environment = gpu.environment(**dict(text.split("=", 1) for text in given.set))
        config = ["--cores", "1", "--configfile", "config/offload.yaml"]
        command = [sys.executable, "-m", "snakemake", *config]
        subprocess.run(command, cwd=given.folder, env=environment, check=True)
        for model in given.model:
            for share in given.share:
                for row in errors_at(given.folder, environment, model, share):
                    print(", ".join(f"{key} {_shown(key, row[key])}" for key in row), flush=True)


def _shown(key: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:+.2%}" if "error" in key else f"{value:.3f}"


if __name__ == "__main__":
    main()
