"""How far is a study of a GPU from the truth? The whole workflow on the simulated GPU.

Takes the study's numbers from its database and comparison, and the true ones from the simulated
GPU: each tuple and each model is run there again, and its kernels' seconds and joules are added up.
The true time of a model is its kernels'. Its true energy is theirs, and that of a device that idles
with a context while it waits for the host.

    PYTHONPATH=scripts python -m tests.benchmarks.simulated_gpu FOLDER
        [--model resnet18:32:112[:training] ...] [--set host_us=20 ...] [--target gpu again ...]

FOLDER is made, and holds the study. With an existing one, the run is continued, and read.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import yaml
from opcost.costs.answers import costs_of_models
from opcost.devices.device import open_device
from opcost.measuring.subjects import ModelSubject, OperatorSubject
from opcost.models.conditions import conditions
from opcost.studies import remembered
from opcost.study import Conditions
from opcost.target import Target

from tests.checkout import Checkout
from tests.quick_measurement import default_measurement
from tests.simulated_cuda.gpu import SimulatedGpu
from tests.stations import station_of

MODULE = "tests.benchmarks.simulated_gpu"
MODELS = ["resnet34:1:56", "resnet18:1:224", "resnet18:32:112"]
TRAINING = {"mode": "training", "loss": "cross_entropy", "optimizer": "AdamW"}
TARGETS = {"dtype": "int64", "high": 1000}
ITERATIONS = 4
CONTEXT_W = 90.0


def make_study(folder: Path, models: list[str], targets: list[str]) -> None:
    """A copy of the repository with a configuration for these models."""
    root = Checkout(folder).root
    names = []
    for text in models:
        name, batch, size, *training = text.split(":")
        names.append("_".join([name, f"b{batch}", size, *training]))
        definition = {"model": name, "inputs": [{"shape": [int(batch), 3, int(size), int(size)]}]}
        if training:
            definition |= TRAINING | {"targets": [TARGETS | {"shape": [int(batch)]}]}
        (root / f"config/models/{names[-1]}.yaml").write_text(yaml.safe_dump(definition))
    target = {"device": "cuda", "threads": 1, "tf32": False}
    config = {"models": names, "targets": dict.fromkeys(targets, target), "rounds": 1}
    (root / "config/simulated.yaml").write_text(json.dumps(config))


def print_truth(folder: Path, code: Path) -> None:
    """Seconds and joules of an iteration of each tuple and model, as JSON: on the simulated GPU."""
    card = ctypes.CDLL(None)
    for name in ("seconds", "joules"):
        getattr(card, f"simulated_cuda_{name}").restype = ctypes.c_double
    device = open_device(Target("cuda", 1, False))
    station = station_of(device, Conditions(Target("cuda", 1, False), default_measurement()))
    truth = {}

    def add(key, subject):
        with conditions(subject.trained):
            workload = subject.set_up(station).workload
            workload.run(1)
            device.synchronise()
            before = card.simulated_cuda_seconds(), card.simulated_cuda_joules()
            workload.run(ITERATIONS)
            after = card.simulated_cuda_seconds(), card.simulated_cuda_joules()
        truth[key] = [(new - old) / ITERATIONS for old, new in zip(before, after, strict=True)]

    results = folder / "results"
    [manifest] = results.glob("studies/*/operator_tuples.json")
    [study] = remembered(results)
    for tuple_id in pd.read_parquet(folder / "results/database.parquet").tuple_id.unique():
        add(tuple_id, OperatorSubject.named(tuple_id, manifest, folder))
    for path in sorted(results.glob("*/*/models/*.parquet")):
        model = pd.read_parquet(path).model[0]
        add(model, ModelSubject.named(path.stem, study.extractions[model], code))
    json.dump(truth, sys.stdout)


def true_costs(
    folder: Path, environment: dict[str, str], code: Path | None = None
) -> dict[str, list[float]]:
    """True seconds and joules of each tuple and model of a study, on the simulated GPU.

    `code` is the folder of the models' factories.
    """
    command = [sys.executable, "-W", "ignore", "-m", MODULE, str(folder), "--truth"]
    command += ["--code", str(code or folder)]
    ran = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout)


def print_errors(folder: Path, truth: dict[str, list[float]]) -> None:
    """The study's numbers beside the true ones."""
    database = pd.read_parquet(folder / "results/database.parquet")
    database["kind"] = [
        "launch" if "launch_bound" in flags else "device" for flags in database["flags"]
    ]
    seconds, joules = (database.tuple_id.map(lambda id_, i=i: truth[id_][i]) for i in range(2))
    database["time"] = database.time_s / seconds - 1
    database["power"] = database.power_w * seconds / joules - 1
    database["energy"] = database.energy_j / joules - 1
    for (target, kind), rows in database.groupby(["target", "kind"]):
        print(
            f"{target}: {len(rows)} {kind}-bound tuples, {rows.device_time_s.median():.1f} s each"
        )
        for name in ("time", "power", "energy"):
            low, median, high = rows[name].quantile([0, 0.5, 1])
            print(f"  {name} - truth: {median:+.1%} in the median, {low:+.1%} to {high:+.1%}")
    for row in costs_of_models(folder / "results/answers.parquet"):
        time_s, energy_j = truth[row["model"]]
        true_j = energy_j + CONTEXT_W * max(0.0, row["end_to_end_time_s"] - time_s)
        print(f"{row['target']} {row['model']}: {row['calls']} calls of {row['tuples']} tuples")
        for name, unit, true in (("time", "s", time_s), ("energy", "j", true_j)):
            total, whole = row[f"estimate_{name}_{unit}"], row[f"end_to_end_{name}_{unit}"]
            print(
                f"  {name} (m{unit}): true {1e3 * true:.3f}{', device' * (name == 'time')}, sum "
                f"{1e3 * total:.3f}, whole {1e3 * whole:.3f}"
            )
            print(
                f"    sum / whole {total / whole - 1:+.1%}, sum / true {total / true - 1:+.1%}, "
                f"whole / true {whole / true - 1:+.1%}"
            )


def main() -> None:
    """Run the study, learn the truth, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", nargs="+", default=MODELS, metavar="NAME:BATCH:SIZE[:training]")
    parser.add_argument("--target", nargs="+", default=["gpu"])
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--truth", action="store_true", help="in a process on the simulated GPU")
    parser.add_argument("--code", type=Path, help="the folder of the models' factories")
    given = parser.parse_args()
    if given.truth:
        print_truth(given.folder, given.code)
        return
    if not given.folder.exists():
        make_study(given.folder, given.model, given.target)
    with tempfile.TemporaryDirectory() as libraries:
        settings = dict(text.split("=", 1) for text in given.set)
        gpu = SimulatedGpu(Path(libraries) / "gpu")
        environment = gpu.environment(**{"context_w": CONTEXT_W, **settings})
        config = ["--cores", "1", "--configfile", "config/simulated.yaml"]
        command = [sys.executable, "-m", "snakemake", *config]
        subprocess.run(command, cwd=given.folder, env=environment, check=True)
        print_errors(given.folder, true_costs(given.folder, environment))


if __name__ == "__main__":
    main()
