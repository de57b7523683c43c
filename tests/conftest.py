"""What several test files share: a CPU device, a quick protocol, and copies of the repository."""

import dataclasses
import subprocess

import pynvml
import pytest
import torch
from card import Card, build
from checkout import REPOSITORY, Checkout, note_again
from opcost.devices.disturbance import find_quiet_s
from opcost.devices.target_device import open_device
from opcost.study import Conditions, MeasurementSettings, Target, load_model
from opcost.tuples.extraction import extract_model_tuples

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


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path / "checkout")


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A checkout with the tiny study done; tests copy it."""
    checkout = Checkout(tmp_path_factory.mktemp("finished") / "checkout")
    checkout.first_run = checkout.started()
    return checkout


@pytest.fixture
def done(finished, tmp_path):
    """A copy of the finished checkout, file times and Snakemake's records included."""
    root = tmp_path / "moved"
    subprocess.run(["cp", "-a", finished.root, root], check=True)
    copy = Checkout.__new__(Checkout)
    copy.root = root
    note_again(copy)
    return copy
