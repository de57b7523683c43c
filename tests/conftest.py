"""What several test files share: a CPU device, a quick protocol, and copies of the repository."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest
import torch
from card import Card, build
from opcost.devices.disturbance import find_quiet_s
from opcost.devices.target_device import open_device
from opcost.study import Conditions, MeasurementSettings, Target, load_model
from opcost.tuples.extraction import extract_model_tuples

REPOSITORY = Path(__file__).parent.parent
STUDY = REPOSITORY / "tests" / "study"

QUICK = MeasurementSettings(
    cache_state="warm",
    seed=0,
    warm_up_s=0.0,
    batch_s=0.001,
    min_batches=6,
    time_relative_ci=0.5,
    min_time_s=0.0,
    max_time_s=0.5,
    model_time_s=0.05,
    power_relative_ci=0.02,
    power_min_s=1.0,
    power_max_s=2.0,
    power_lead_in_max_s=4.0,
    idle_s=0.2,
    max_repeats=0,
    repeat_pause_s=0.0,
    timeout_s=60,
)


@pytest.fixture(scope="session")
def loaded_card(tmp_path_factory):
    library = build(tmp_path_factory.mktemp("simulated_nvml"))
    if library is None:
        pytest.skip("no C compiler (cc) to build the simulated NVML with")
    card = Card(library)
    pynvml.nvmlInit()
    if pynvml.nvmlSystemGetDriverVersion() != "simulated":
        pytest.skip("the real NVML is loaded in this process")
    return card


@pytest.fixture
def card(loaded_card):
    """The simulated NVIDIA card, on a virtual clock; other tests see it as broken."""
    loaded_card.reset()
    yield loaded_card
    loaded_card.reset(fail_all=999)


@pytest.fixture(scope="session")
def cpu():
    return open_device(Target("cpu", 1, False))


@pytest.fixture(scope="session")
def watch(cpu):
    """A watch that takes the core's present speed for its quiet one."""
    return cpu.watch(find_quiet_s(0.2))


@pytest.fixture(scope="session")
def conditions():
    return Conditions(Target("cpu", 1, False), QUICK)


@pytest.fixture(scope="session")
def cold_conditions():
    return Conditions(Target("cpu", 1, False), dataclasses.replace(QUICK, cache_state="cold"))


@pytest.fixture(scope="session")
def tiny_tuples():
    """Tuples of the two models of the tiny study."""
    schema = REPOSITORY / "workflow" / "schemas" / "model.schema.yaml"
    return [
        extract_model_tuples(load_model(name, STUDY / "models", schema), STUDY / "models")
        for name in ("tiny_mlp", "tiny_cnn")
    ]


@pytest.fixture(autouse=True)
def subnormal_numbers():
    """Measuring on a CPU turns subnormal numbers off for the process; other tests draw some."""
    yield
    torch.set_flush_denormal(False)


class Checkout:
    """A copy of the repository, to run Snakemake in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in (
            "Snakefile",
            "workflow",
            "profiles",
            "scripts",
            "config",
            "envs",
            "tests/study",
        ):
            source, copy = REPOSITORY / name, root / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, copy)

    def command(self, *arguments: str) -> list[str]:
        study = ["--configfile", "tests/study/config.yaml"]
        # The profile's `quiet` would hide which rules run.
        command = [sys.executable, "-m", "snakemake", "--cores", "1", "--quiet", "host"]
        return [*command, *study, *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": str(self.other_package())},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def other_package(self) -> Path:
        """Where another opcost is installed, which is not to be used."""
        package = self.root / "installed" / "opcost"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("raise ImportError('another opcost')\n")
        return package.parent

    def started(self, *arguments: str) -> list[str]:
        """Run, and name the rule of each job."""
        completed = self.run(*arguments)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        rules = re.findall(r"^Finished jobid: \d+ \(Rule: (\w+)\)", completed.stderr, re.MULTILINE)
        return sorted(rule for rule in rules if rule not in ("all", "default", "characterize"))


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path / "checkout")
