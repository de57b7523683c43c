"""What does the workflow cost beside its measurements, and does that grow with the study?

A copy of the repository, in which only the measurement is a stub that sleeps for a known time, runs
a study of models with as many distinct operator tuples as asked for. All else is real: extraction,
manifest, Snakemake, jobs, locks, Parquet, aggregation. Printed are the time of each step,
Snakemake's own memory, and its share of a core while the first and the last hundred tuples are
measured.

With --seeded, the results are written directly, as a job writes them, and taken over by Snakemake
(--touch), so that what follows a long run can be timed without one.

    python -m tests.benchmarks.many_tuples [--tuples 500] [--stub-s 0.2] [--seeded]
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[2]
TUPLES_PER_MODEL = 250
NEW_TUPLES = 20
EDGE = 100
POLL_S = 0.25
TICKS = os.sysconf("SC_CLK_TCK")

FACTORY = '''
from torch import nn


class Layers(nn.Module):
    def __init__(self, first, count):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1, first + index) for index in range(count))

    def forward(self, image):
        return [layer(image) for layer in self.layers]


def layers(first, count):
    """Linear layers of which no two are the same tuple."""
    return Layers(first, count)
'''

STUB = '''

def _stub(row):
    import time

    time.sleep({stub_s})
    result = dict(status="ok", time_s={stub_s}, time_ci_low_s=0.99 * {stub_s},
                  time_ci_high_s=1.01 * {stub_s}, block_time_s=[{stub_s}] * 40, converged=True,
                  stop_reason="converged", flags=[], energy_reason="a stub")
    return row | result


def measure(subject, station, kept=None):
    """The row of a measurement that did not take place."""
    return _stub(subject.columns() | station.columns())
'''

SEED = """
import sys, yaml
from pathlib import Path
from unittest.mock import patch

from opcost.measuring import benchmark
from opcost.measuring.station import Station
from opcost.measuring.subjects import ModelSubject, OperatorSubject
from opcost.tuples import manifest
from opcost.tuples.tuple_record import TupleRecord
from opcost.rows import records, schemas
from opcost import study
from opcost.addresses import Addresses
from opcost.devices.processor import CpuDevice

config = yaml.safe_load(Path("study.yaml").read_text())
loaded = study.load_study(config)
conditions, device = loaded.conditions["local"], CpuDevice()
station = Station("local", conditions, device, device.watch(1.0), None)
addresses = Addresses(loaded)
entries = manifest.read_manifest(addresses.manifest)
chosen = manifest.to_benchmark(entries)
results = addresses.folders["local"]
with patch("time.sleep"), patch("os.fsync"):
    for tuple_id in chosen:
        path = results / "operators" / f"{tuple_id}.parquet"
        if not path.exists():
            record = TupleRecord.from_document(entries[tuple_id])
            row = benchmark.measure(OperatorSubject(record), station)
            records.write(path, schemas.OPERATOR, [row])
    for name, definition in loaded.models.items():
        row = benchmark.measure(ModelSubject(definition), station)
        for folder in ("models", "models_2"):
            path = results / folder / f"{addresses.definition(name)}.parquet"
            records.write(path, schemas.MODEL, [row])
"""


@dataclass
class Run:
    """A finished Snakemake: seconds, peak memory in MB, samples of (time, CPU seconds, done)."""

    wall_s: float
    peak_mb: float
    samples: list[tuple[float, float, int]]

    def share(self, first: int, last: int) -> float:
        """The share of a core that Snakemake took while those tuples were measured."""
        between = [sample for sample in self.samples if first <= sample[2] <= last]
        if len(between) < 2:
            return float("nan")
        (start, busy_start, _), (end, busy_end, _) = between[0], between[-1]
        return (busy_end - busy_start) / (end - start)


class Study:
    """A copy of the repository with stubs in it, and a study of synthetic models."""

    def __init__(self, root: Path, tuples: int, stub_s: float) -> None:
        self.root = root
        ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
        for name in ("workflow", "profiles", "scripts", "envs"):
            shutil.copytree(REPOSITORY / name, root / name, ignore=ignore)
        shutil.copy(REPOSITORY / "Snakefile", root)
        (root / "config" / "models").mkdir(parents=True)
        with (root / "scripts/opcost/measuring/benchmark.py").open("a") as file:
            file.write(STUB.format(stub_s=stub_s))
        (root / "config/models/many.py").write_text(FACTORY)
        self.config = yaml.safe_load((REPOSITORY / "tests/study/config.yaml").read_text())
        self.config |= {"models": [], "model_directory": "config/models", "rounds": 2}
        for first in range(1, tuples + 1, TUPLES_PER_MODEL):
            self.add_model(first, min(TUPLES_PER_MODEL, tuples + 1 - first))

    def add_model(self, first: int, count: int) -> None:
        """One more model, of `count` tuples."""
        name = f"layers_{first}"
        document = {
            "factory": "many:layers",
            "arguments": {"first": first, "count": count},
            "inputs": [{"shape": [1, 1]}],
        }
        (self.root / f"config/models/{name}.yaml").write_text(yaml.safe_dump(document))
        self.config["models"].append(name)
        for path in ("study.yaml", "config/config.yaml"):
            (self.root / path).write_text(yaml.safe_dump(self.config))

    def python(self, code: str) -> None:
        """Run code with the copy's package."""
        environment = os.environ | {"PYTHONPATH": str(self.root / "scripts")}
        subprocess.run([sys.executable, "-c", code], cwd=self.root, env=environment, check=True)

    def snakemake(self, *arguments: str) -> Run:
        """Run Snakemake as a user does, and watch it."""
        command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
        start = time.monotonic()
        with (self.root / "output.txt").open("w") as output:
            process = subprocess.Popen(command, cwd=self.root, stdout=output, stderr=output)
            samples, peak_mb = [], 0.0
            while process.poll() is None:
                if found := self._sample(process.pid):
                    samples.append((time.monotonic(), found[0], self.measured()))
                    peak_mb = found[1]
                time.sleep(POLL_S)
        if process.returncode != 0:
            raise SystemExit((self.root / "output.txt").read_text()[-5000:])
        return Run(time.monotonic() - start, peak_mb, samples)

    def measured(self) -> int:
        """Tuples that have a result."""
        return len([*self.root.glob("results/local/*/operators/*")])

    @staticmethod
    def _sample(process: int) -> tuple[float, float] | None:
        """CPU seconds and peak memory in MB of a process alone, None once it is gone."""
        try:
            stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{process}/status").read_text()
            peak_kb = int(status.partition("VmHWM:")[2].split()[0])
        except (OSError, IndexError):
            return None
        return (int(stat[11]) + int(stat[12])) / TICKS, peak_kb / 1024


def report(step: str, run: Run) -> None:
    """One line for a step: seconds, Snakemake's own seconds of the processor, its peak memory."""
    own_s = run.samples[-1][1]
    print(
        f"{step:42}{run.wall_s:>8.1f} s{own_s:>8.1f} s of its own{run.peak_mb:>6.0f} MB", flush=True
    )


def measure_all(study: Study, tuples: int, stub_s: float) -> None:
    """The study as a user runs it, jobs and all."""
    jobs = tuples + 10 + len(study.config["models"])
    run = study.snakemake()
    report(f"measuring: {jobs} jobs of {stub_s:g} s", run)
    beyond_s = run.wall_s - jobs * stub_s
    print(
        f"  wall / measurements {run.wall_s / (jobs * stub_s):.2f}, {beyond_s / jobs:.3f} s a job"
    )
    first, last = run.share(1, EDGE), run.share(tuples - EDGE, tuples)
    print(f"  Snakemake's share of a core: first {EDGE} {first:.1%}, last {EDGE} {last:.1%}")


def seed(study: Study) -> None:
    """The results as the jobs would have written them."""
    start = time.monotonic()
    study.python(SEED)
    print(f"{'writing the results directly':42}{time.monotonic() - start:>9.1f} s", flush=True)
    until = ["benchmark_operator", "benchmark_model"]
    report("taking them over (--touch)", study.snakemake("--touch", "--until", *until))
    report("database and comparison", study.snakemake())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuples", type=int, default=500)
    parser.add_argument("--stub-s", type=float, default=0.2)
    parser.add_argument("--seeded", action="store_true")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each job would compile the package
    with tempfile.TemporaryDirectory() as temporary:
        study = Study(Path(temporary) / "study", arguments.tuples, arguments.stub_s)
        report("extraction, manifest, device, sensor", study.snakemake("--", "collect"))
        report("dry-run, nothing measured", study.snakemake("--dry-run"))
        if arguments.seeded:
            seed(study)
        else:
            measure_all(study, arguments.tuples, arguments.stub_s)
        report("again, nothing to do", study.snakemake())
        report("dry-run, nothing to do", study.snakemake("--dry-run"))
        study.add_model(arguments.tuples + 1, NEW_TUPLES)
        added = study.snakemake()
        report(f"one model more, of {NEW_TUPLES} new tuples", added)
        measured = NEW_TUPLES + 2  # with the whole model, twice
        beyond_s = added.wall_s - measured * arguments.stub_s
        print(f"  {beyond_s:.1f} s beyond its measurements")
