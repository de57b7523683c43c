"""Another environment is noticed: by its address, or by the jobs that open the device."""

import ast
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
from opcost.addresses import Addresses
from opcost.devices import machine
from opcost.devices.device_file import (
    ENVIRONMENT,
    DeviceFile,
    changes_between,
    refuse_changes,
    write_device,
)
from opcost.devices.environment import stable_environment
from opcost.devices.kinds import KINDS
from opcost.devices.machine import installed_torch
from opcost.errors import OpcostError
from opcost.plain_yaml import read_yaml
from opcost.results_folder import settings_file
from opcost.study import load_study

from tests.checkout import MEASUREMENTS, STUDY, stamps

CPU = DeviceFile(
    device="cpu",
    device_name="Xeon",
    lock_key="cpu",
    last_level_cache_bytes=32_000_000,
    core_cache_bytes=1_000_000,
    cpu_count=8,
    machine_id_hash="aaaa",
    thread_library="libgomp, AVX2",
    torch_version="2.14.0",
    process_environment="none",
)
GPU = replace(
    CPU,
    device="cuda:0",
    device_name="H100",
    device_uuid_hash="1111",
    lock_key="1111",
    driver_version="580.1",
    cuda_version="13.1",
    cudnn_version="92000",
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "local/cpu-0/device.json"
    write_device(path, CPU)
    return path


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("device_name", "A100"),
        ("device_uuid_hash", "2222"),
        ("machine_id_hash", "bbbb"),
        ("last_level_cache_bytes", 64_000_000),
        ("driver_version", "590.1"),
        ("cuda_version", "13.2"),
        ("cudnn_version", "93000"),
        ("torch_version", "2.15.0"),
        ("process_environment", "MALLOC_PERTURB_=165"),
    ],
)
def test_each_change_of_a_gpus_environment_is_noticed_with_both_values(file, name, other):
    write_device(file, GPU)
    notices(file, GPU, name, other)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("cpu_count", 256),
        ("last_level_cache_bytes", 64_000_000),
        ("core_cache_bytes", 2_000_000),
        ("thread_library", "libiomp5, AVX512"),
        ("torch_version", "2.15.0"),
        ("process_environment", "MALLOC_PERTURB_=165"),
    ],
)
def test_each_change_of_a_processors_environment_is_noticed_with_both_values(file, name, other):
    notices(file, CPU, name, other)


def notices(file, device, name, other):
    before = getattr(device, name)
    with pytest.raises(OpcostError, match=f": {before} before, {other} now\n"):
        refuse_changes(file, asdict(replace(device, **{name: other})))


def test_the_same_environment_is_no_change_nor_is_a_first_one(file):
    refuse_changes(file, asdict(CPU))
    refuse_changes(file.with_name("none.json"), asdict(GPU))


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_what_is_not_known_on_one_side_is_no_change(name):
    known, unknown = asdict(GPU), asdict(GPU) | {name: None}
    assert changes_between(known, unknown) == changes_between(unknown, known) == []
    del unknown[name]
    assert changes_between(known, unknown) == []


def test_a_gpus_host_may_have_other_cores_and_threads():
    now = replace(GPU, cpu_count=256, thread_library="libiomp5, AVX512")
    assert changes_between(asdict(GPU), asdict(now)) == []


def test_of_a_kind_any_device_of_the_same_name_may_measure(file):
    another = asdict(replace(GPU, device="cuda:1", device_uuid_hash="2222", machine_id_hash="b"))
    write_device(file, GPU)
    with pytest.raises(OpcostError, match="any_of_kind: true"):
        refuse_changes(file, another)
    write_device(file, replace(GPU, device_uuid_hash=None, lock_key=None, machine_id_hash=None))
    refuse_changes(file, another)
    with pytest.raises(OpcostError, match="device: H100 before, A100 now"):
        refuse_changes(file, another | {"device_name": "A100"})


def test_a_gpu_that_has_another_number_now_is_the_same():
    assert changes_between(asdict(GPU), asdict(replace(GPU, device="cuda:1"))) == []


def test_what_differs_from_former_conditions_is_named_as_far_as_files_tell(tmp_path):
    document = read_yaml(STUDY / "config.yaml") | {"model_directory": str(STUDY / "models")}
    addresses = Addresses(load_study(document), tmp_path)
    conditions = addresses.study.conditions["local"]
    former = tmp_path / "local/cpu-former"
    assert addresses.differences("local", former) == []
    known = KINDS["cpu"].recorded() | {"torch_version": installed_torch()["torch_version"]}
    write_device(former / "device.json", replace(CPU, **known))
    settings = replace(conditions, target=replace(conditions.target, threads=2))
    settings_file(former).write_text(settings.to_json())
    assert addresses.differences("local", former) == ["threads: 2 -> 1"]
    variable = {"process_environment": "MALLOC_ARENA_MAX=77"}
    write_device(former / "device.json", replace(CPU, **known | variable))
    settings_file(former).write_text("{")
    [text] = addresses.differences("local", former)
    assert text == f"process_environment: MALLOC_ARENA_MAX=77 -> {known['process_environment']}"


SLOWS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "CUDA_MODULE_LOADING": "1\n2",
    "DNNL_MAX_CPU_ISA": "AVX2",
    "GLIBC_TUNABLES": "glibc.malloc.perturb=1",
    "KMP_BLOCKTIME": "0",
    "LD_PRELOAD": "/home/jo/lib/libfaked.so.2:b.so",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_PERTURB_": "165",
    "MKL_DYNAMIC": "FALSE",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "0",
    "PYTHONMALLOC": "debug",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1",
}
DOES_NOT = {
    **{"OMP_NUM_THREADS": "2", "CUDA_VISIBLE_DEVICES": "1", "TORCH_HOME": "/a"},
    **{"CUDA_VERSION": "13", "MKL_DYNAMIC": "", "PYTHONPATH": "a", "HOME": "b"},
    **{"NVIDIA_API_KEY": "secret", "TORCH_CPP_LOG_LEVEL": "INFO", "KMP_DUPLICATE_LIB_OK": "True"},
    **{"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "CUDA_INC": "/cuda", "OMP_DISPLAY_ENV": "true"},
}
"""What each job has of its own, where files are, what is logged, and what nobody should read."""


def test_variables_that_change_times_are_a_condition():
    clean = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    shown = SLOWS | {"LD_PRELOAD": "libfaked.so.2 b.so"}
    expected = [f"{name}={value.lower()}" for name, value in shown.items()]
    expected[2] = "'CUDA_MODULE_LOADING=1\\n2'"
    for variables, recorded in ((SLOWS, expected), (DOES_NOT, [])):
        found = environment_of_a_process(clean | variables).split(", ")
        found = [each for each in found if each != "none" and "hugepage" not in each]
        assert found == recorded


def environment_of_a_process(variables, before="pass"):
    code = f"{before}\nfrom opcost.devices import kinds\nprint(kinds.KINDS['cpu'].recorded())"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True
    )
    return ast.literal_eval(ran.stdout)["process_environment"]


def test_what_a_models_code_sets_is_no_change_of_the_environment(cpu, monkeypatch):
    before = stable_environment(cpu)
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "True")
    assert stable_environment(cpu) == before


def test_what_is_told_without_torch_is_what_a_job_finds(cpu, conditions):
    """Else what has the same address would be refused, though nothing has changed."""
    found = stable_environment(cpu) | {"device": "cpu"}
    told = cpu.kind.recorded()
    assert {name: found[name] for name in told} == told
    assert installed_torch()["torch_version"] == found["torch_version"]


@pytest.mark.parametrize("container", [False, True])
def test_a_containers_machine_id_tells_nothing_of_the_machine(monkeypatch, container):
    files = {"/etc/machine-id": "of-the-image", "/sys/class/dmi/id/product_uuid": ""}
    monkeypatch.setattr(machine, "first_line", lambda path: files[str(path)])
    monkeypatch.setattr(machine, "_in_container", lambda: container)
    assert (machine.machine_id_hash() is None) == container
    assert "of-the-image" not in str(machine.machine_id_hash())


def test_a_job_refuses_a_device_that_has_changed_and_nothing_is_lost(done):
    device = done.folder / "device.json"
    document = json.loads(device.read_text())
    device.write_text(json.dumps(document | {"thread_library": "another"}))
    next(done.root.glob(MEASUREMENTS)).unlink()
    before = stamps(done)
    stopped = done.run()
    assert stopped.returncode != 0
    assert "thread library: another before, " in stopped.stdout + stopped.stderr
    assert stamps(done) == before
