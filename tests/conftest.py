"""What several test files share: a CPU device, a quick protocol, and copies of the repository.

Fixtures alone import PyTorch: the process that steers the workers of pytest-xdist does without, and
they start when it has imported this file.
"""

import dataclasses
import fcntl
import json
import os
import textwrap
from functools import partial

import pynvml
import pytest
from hypothesis import settings
from opcost.devices import lock
from opcost.models.configs import load_model
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.study import Conditions
from opcost.target import Target

from tests.checkout import STUDY, Checkout
from tests.quick_measurement import QUICK

settings.register_profile("any speed", deadline=None)
settings.load_profile("any speed")

# Threads that wait for others spin: with more of them than cores, tests took half as long again.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    """Tests that start Snakemake are marked `workflow`, and come early in each worker's share.

    Workers of pytest-xdist begin with equal shares and take from the end of each other's: short
    tests, so that all end at once. But for the first, they begin with some short ones, too, until
    the first has made `finished`.
    """
    for item in items:
        if {"checkout", "finished"} & set(item.fixturenames):
            item.add_marker("workflow")
    yield
    long = [item for item in items if item.get_closest_marker("workflow")]
    short = [item for item in items if not item.get_closest_marker("workflow")]
    workers, total = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), len(items)
    items.clear()
    for number in range(workers):
        first, last = (len(long) * each // workers for each in (number, number + 1))
        room = total * (number + 1) // workers - len(items) - (last - first)
        filling, short = short[:room], short[room:]
        early = len(filling) // 4 if number else 0
        items += [*filling[:early], *long[first:last], *filling[early:]]
    items += short


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory):
    """Workers of pytest-xdist do not wait for each other's device."""
    lock.FOLDER = tmp_path_factory.mktemp("locks")
    os.environ["OPCOST_LOCKS"] = str(lock.FOLDER)


@pytest.fixture(scope="session", autouse=True)
def imported_torchvision():
    """Once, rather than in each process that a test forks."""
    import torchvision  # noqa: F401


@pytest.fixture(scope="session")
def loaded_card(tmp_path_factory):
    from tests.simulated_nvml.card import Card, build

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
def library_of_sampler(tmp_path_factory):
    """The folder of the simulated NVML, for other processes."""
    from tests.simulated_nvml.card import build

    library = build(tmp_path_factory.mktemp("nvml_of_sampler"))
    if library is None:
        pytest.skip("no C compiler (cc) to build the simulated NVML with")
    return library.parent


@pytest.fixture
def gpu(library_of_sampler, tmp_path, monkeypatch):
    """What is set of the simulated card, as all processes see it, with locks of its own. Its
    administrator has set 650 W.
    """
    from tests.simulated_nvml.points import CardPoint

    monkeypatch.setenv("LD_LIBRARY_PATH", str(library_of_sampler))
    monkeypatch.setenv("SIMULATED_POINT", str(tmp_path / "card"))
    monkeypatch.setenv("OPCOST_LOCKS", str(tmp_path))
    monkeypatch.setattr(lock, "FOLDER", tmp_path)
    point = CardPoint(tmp_path / "card")
    point.set(650)
    return point


@pytest.fixture
def card_of_sampler(library_of_sampler, monkeypatch):
    """Samplers, which are other processes, read the simulated card; none is shared by tests."""
    from opcost.power import windows

    monkeypatch.setenv("LD_LIBRARY_PATH", str(library_of_sampler))
    monkeypatch.setenv("SIMULATED_REFRESH_S", "0.02")
    monkeypatch.setenv("SIMULATED_WINDOW_S", "0.02")
    monkeypatch.setenv("SIMULATED_COUNTER_STEP_S", "0.02")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("OPCOST_RECORDINGS", raising=False)
    monkeypatch.setattr(windows, "_shared", None)
    yield
    if windows._shared is not None:
        windows._shared.close()


@pytest.fixture(scope="session")
def cpu():
    from opcost.devices.device import open_device

    return open_device(Target("cpu", 1, False))


@pytest.fixture(scope="session")
def watch(cpu):
    """A watch that takes the core's present speed for its baseline."""
    from opcost.devices.disturbance import find_baseline_s

    return cpu.watch(find_baseline_s(0.2))


@pytest.fixture(scope="session")
def conditions():
    return Conditions(Target("cpu", 1, False), QUICK)


@pytest.fixture(scope="session")
def cold_conditions():
    return Conditions(Target("cpu", 1, False), dataclasses.replace(QUICK, cache_state="cold"))


@pytest.fixture(scope="session")
def tiny_tuples():
    """Tuples of the two models of the tiny study."""
    from opcost.tuples.extraction import extract_model_tuples

    return [
        extract_model_tuples(load_model(name, STUDY / "models"), STUDY / "models")
        for name in ("tiny_mlp", "tiny_cnn")
    ]


@pytest.fixture
def compare(tiny_tuples):
    """Compares tiny_cnn, as `comparisons.compared` does."""
    from tests.comparisons import compared

    return partial(compared, tiny_tuples[1])


@pytest.fixture(autouse=True)
def subnormal_numbers():
    """Measuring on a CPU turns subnormal numbers off for the process; other tests draw some."""
    import torch

    yield
    torch.set_flush_denormal(False)


@pytest.fixture
def model(tmp_path, monkeypatch, request):
    """Writes a factory, of which a body is given, in a module of its own, and defines its model."""

    def write(body, before="", shape=(2, 4)):
        name = f"model_{abs(hash((request.node.nodeid, body, before)))}"
        (tmp_path / f"{name}.py").write_text(
            "import os, signal, sys, threading, time, torch\n"
            "from torch import nn\n"
            f"{before}\n"
            "def build():\n"
            f"{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
            "    return nn.Linear(4, 4)\n"
        )
        return ModelDefinition("mine", (InputSpec(shape),), factory=f"{name}:build")

    monkeypatch.chdir(tmp_path)
    return write


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path / "checkout")


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A checkout with the tiny study done, for all workers of pytest-xdist; tests copy it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    note = folder / "finished.json"
    with (folder / "finished.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        checkout = Checkout(folder / "finished")
        if not note.exists():
            note.write_text(json.dumps(checkout.started(fresh=True)))
    checkout.first_run = json.loads(note.read_text())
    return checkout


@pytest.fixture
def done(finished, tmp_path):
    return finished.copied(tmp_path / "moved")


@pytest.fixture
def prepared(done):
    """A checkout in which models are extracted, the device is known, and nothing is measured."""
    return done.without_measurements()
