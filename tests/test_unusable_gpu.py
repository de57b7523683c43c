"""A GPU that PyTorch cannot use is an error, and never a measurement of the processor."""

import json
import subprocess
import sys

import pytest

from tests.simulated_cuda import gpu

MISSING = gpu.missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

# Each case in a fork, because torch is slow to import.
OPEN = """
import ctypes, json, os, sys
import torch
from opcost.devices.device import open_device
from opcost.errors import OpcostError
from opcost.target import Target

simulated = ctypes.CDLL(None)
for device, settings, variables in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        os.environ.update(variables)
        for name, value in settings.items():
            simulated.simulated_cuda_set(name.encode(), ctypes.c_double(value))
        try:
            found = open_device(Target(device, 1, False))
            print(json.dumps(found.name), flush=True)
        except OpcostError as error:
            print(json.dumps(str(error)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
CASES = {
    "usable": ("auto", {}, {}),
    "old driver": ("auto", {"driver_version": 12040}, {}),
    "old driver, GPU asked for": ("cuda", {"driver_version": 12040}, {}),
    "old architecture": ("auto", {"compute_capability": 61}, {}),
    "full memory": ("auto", {"other_memory_gb": 79.5}, {}),
    "lost": ("auto", {"lost_at_s": 0}, {}),
    "no such GPU": ("cuda:1", {}, {}),
    "hidden": ("auto", {}, {"CUDA_VISIBLE_DEVICES": ""}),
    "hidden, GPU asked for": ("cuda", {}, {"CUDA_VISIBLE_DEVICES": ""}),
    "hidden by a mistake": ("auto", {}, {"CUDA_VISIBLE_DEVICES": "7"}),
    "blocking launches": ("auto", {}, {"CUDA_LAUNCH_BLOCKING": "1"}),
    "launches that do not block": ("auto", {}, {"CUDA_LAUNCH_BLOCKING": "0"}),
    "TF32 forbidden": ("auto", {}, {"NVIDIA_TF32_OVERRIDE": "0"}),
}


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """What comes of opening the device, by case: its name, or an error's text."""
    simulated = gpu.SimulatedGpu(tmp_path_factory.mktemp("unusable_gpu") / "gpu")
    environment = simulated.environment() | {"PYTHONPATH": "scripts"}
    command = [sys.executable, "-W", "ignore", "-c", OPEN, json.dumps(list(CASES.values()))]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(answers) == len(CASES), ran.stderr
    return dict(zip(CASES, answers, strict=True))


@pytest.mark.parametrize("case", ["usable", "launches that do not block"])
def test_auto_is_a_gpu_where_there_is_one(case, opened):
    assert opened[case] == "cuda:0"


@pytest.mark.parametrize("case", ["old driver", "old driver, GPU asked for"])
def test_a_driver_too_old_for_pytorch_is_named_with_the_remedy(case, opened):
    assert "1 NVIDIA GPU" in opened[case]
    assert "driver simulated" in opened[case]
    assert "too old (found version 12040)" in opened[case]
    assert "Update the driver" in opened[case]
    assert "`device: cpu`" in opened[case]


def test_a_gpu_that_pytorch_has_no_kernels_for_is_named_with_those_it_has(opened):
    assert "compute capability 6.1" in opened["old architecture"]
    assert "no kernel image" in opened["old architecture"]
    assert "sm_90" in opened["old architecture"]


def test_gpus_that_the_user_hid_are_none(opened):
    assert opened["hidden"] == "cpu"
    assert "finds no CUDA device" in opened["hidden, GPU asked for"]


def test_gpus_hidden_by_mistake_are_no_reason_to_measure_the_processor(opened):
    assert opened["hidden by a mistake"].startswith("CUDA_VISIBLE_DEVICES=7 is set")


def test_a_gpu_that_cannot_be_used_now_is_no_reason_to_install_another_pytorch(opened):
    assert "0 bytes is free. End what else uses its memory" in opened["full memory"]
    assert "unspecified launch failure. See what nvidia-smi says" in opened["lost"]
    assert "install" not in opened["full memory"] + opened["lost"]


def test_the_gpus_there_are_are_named(opened):
    assert "cuda:0 to cuda:0" in opened["no such GPU"]


@pytest.mark.parametrize(
    ("case", "variable"),
    [("blocking launches", "CUDA_LAUNCH_BLOCKING=1"), ("TF32 forbidden", "NVIDIA_TF32_OVERRIDE=0")],
)
def test_variables_that_change_what_a_number_means_are_refused(case, variable, opened):
    assert variable in opened[case]
