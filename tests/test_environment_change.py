"""A target that was measured in another environment is noticed, and nothing measured is lost."""

import ast
import contextlib
import json
import os
import re
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from opcost.commands import main
from opcost.devices import machine_id
from opcost.devices.device_file import ENVIRONMENT, DeviceFile, write_device
from opcost.devices.environment import stable_environment
from opcost.devices.installation import installed_torch
from opcost.environments.advice import advice, aside_name, refuse_changes, summary
from opcost.environments.changes import changes_between, changes_of
from opcost.environments.noticed import is_noted, refuse_and_note_changes
from opcost.environments.present import changes_here
from opcost.environments.recorded import recorded_environment
from opcost.environments.set_aside import set_aside
from opcost.errors import OpcostError
from opcost.measuring.target_identity import identify_target
from opcost.results_folder import all_measurements
from opcost.rows import records, schemas
from opcost.run_lock import RunLock
from opcost.tuples.model_tuples import write_model_tuples

from tests.checkout import MEASUREMENTS, configure, stamps

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
def folder(tmp_path):
    return target_in(tmp_path / "results")


def target_in(results, name="local", device=CPU, rows=2):
    folder = results / name
    write_device(folder / "device.json", device)
    for number in range(rows):
        row = {"tuple_id": f"{number:016x}", "target": name, "status": "ok", "time_s": 1e-3}
        path = folder / "operators" / f"{row['tuple_id']}.parquet"
        records.write(path, schemas.OPERATOR, [row | {"torch_version": "2.14.0"}])
    return folder


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
def test_each_change_of_a_gpus_environment_is_noticed_with_both_values(tmp_path, name, other):
    notices(target_in(tmp_path, device=GPU), GPU, name, other)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("device_name", "EPYC"),
        ("machine_id_hash", "bbbb"),
        ("cpu_count", 256),
        ("last_level_cache_bytes", 64_000_000),
        ("core_cache_bytes", 2_000_000),
        ("thread_library", "libiomp5, AVX512"),
        ("torch_version", "2.15.0"),
        ("process_environment", "MALLOC_PERTURB_=165"),
    ],
)
def test_each_change_of_a_processors_environment_is_noticed_with_both_values(folder, name, other):
    notices(folder, CPU, name, other)


def notices(folder, device, name, other):
    before = getattr(device, name)
    with pytest.raises(OpcostError, match=f": {before} before, {other} now\n"):
        refuse_changes(folder, asdict(replace(device, **{name: other})))


def test_the_same_environment_is_no_change(folder):
    refuse_changes(folder, asdict(CPU))


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_what_is_not_known_on_one_side_is_no_change(name):
    known, unknown = asdict(GPU), asdict(GPU) | {name: None}
    assert changes_between(known, unknown) == changes_between(unknown, known) == []
    del unknown[name]
    assert changes_between(known, unknown) == []


def test_a_gpus_host_may_have_other_cores_and_threads():
    now = replace(GPU, cpu_count=256, thread_library="libiomp5, AVX512")
    assert changes_between(asdict(GPU), asdict(now)) == []


def test_of_a_kind_any_device_of_the_same_name_may_measure(tmp_path):
    another = asdict(replace(GPU, device="cuda:1", device_uuid_hash="2222", machine_id_hash="b"))
    assert len(changes_of(target_in(tmp_path, device=GPU), another)) == 2
    kind = replace(GPU, device_uuid_hash=None, lock_key=None, machine_id_hash=None)
    assert changes_of(target_in(tmp_path, device=kind), another) == []
    assert len(changes_of(tmp_path / "local", another | {"device_name": "A100"})) == 1


def test_a_gpu_that_has_another_number_now_is_the_same():
    assert changes_between(asdict(GPU), asdict(replace(GPU, device="cuda:1"))) == []


def test_without_a_device_file_that_tells_the_first_row_does(folder):
    for written in (DeviceFile("cpu", "Xeon", lock_key="cpu"), None):
        (folder / "device.json").unlink()
        if written:
            write_device(folder / "device.json", written)
        assert recorded_environment(folder)["torch_version"] == "2.14.0"
        [change] = changes_of(folder, asdict(replace(CPU, torch_version="2.15.0")))
        assert (change.before, change.now) == ("2.14.0", "2.15.0")


def test_a_row_of_a_crash_tells_nothing_of_the_environment(folder):
    (folder / "device.json").unlink()
    first = all_measurements(folder)[0]
    records.write(first, schemas.OPERATOR, [{"tuple_id": first.stem, "status": "crashed"}])
    assert recorded_environment(folder)["torch_version"] == "2.14.0"


def test_a_target_that_was_never_measured_has_no_environment_to_change(tmp_path):
    assert recorded_environment(tmp_path / "new") == {}
    refuse_changes(tmp_path / "new", asdict(CPU))


def test_a_device_is_not_identified_beside_rows_of_another_environment(folder, conditions):
    (folder / "device.json").unlink()
    with pytest.raises(OpcostError, match=r"PyTorch: 2\.14\.0 before, 2\.\d+\.\d+.* now"):
        identify_target(conditions.target, folder / "device.json")
    assert not (folder / "device.json").exists()


def test_a_job_leaves_a_note_for_its_run(folder):
    began_s = (folder / "device.json").stat().st_mtime
    refuse_and_note_changes(folder, asdict(CPU))
    assert not is_noted(folder, began_s)
    with pytest.raises(OpcostError, match="thread library"):
        refuse_and_note_changes(folder, asdict(replace(CPU, thread_library="libiomp5")))
    assert is_noted(folder, began_s)
    assert not is_noted(folder, began_s + 3600)


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


def test_what_is_told_without_torch_is_what_a_job_finds(tmp_path, cpu, conditions):
    """Else a run would stop though nothing has changed."""
    device = DeviceFile("cpu", **stable_environment(cpu))
    assert changes_here(target_in(tmp_path, device=device), conditions.target) == []
    assert installed_torch()["torch_version"] == device.torch_version


def test_the_advice_names_the_rows_and_commands(folder):
    now = asdict(replace(CPU, torch_version="2.15.0"))
    text = advice(folder, changes_of(folder, now))
    assert f"{folder} holds 2 measurements of that environment" in text
    assert "\n    opcost set-aside local\n" in text
    assert f"--target {aside_name(folder)}=local\n" in text
    assert "snakemake --cores 1 --forcerun extract" in text
    line = summary(folder, changes_of(folder, now))
    assert "2.14.0 before, 2.15.0 now" in line
    assert "\n" not in line


def test_set_aside_rows_stay_as_they_are_under_another_name(folder):
    before = contents(folder)
    name = set_aside("local", folder.parent)
    assert re.fullmatch(r"local_\d{4}_\d\d_\d\d", name)
    assert not folder.exists()
    assert contents(folder.parent / name) == before


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}


def test_what_is_set_aside_on_one_day_gets_names_of_its_own(folder):
    announced = aside_name(folder)
    names = [set_aside("local", target_in(folder.parent).parent) for _ in range(3)]
    assert names == [announced + suffix for suffix in ("", "_2", "_3")]


def test_tuples_of_another_pytorch_are_extracted_again(folder, tiny_tuples):
    tuples = folder.parent / "tuples"
    write_model_tuples(tuples / "old.pkl", replace(tiny_tuples[0], torch_version="2.14.0"))
    write_model_tuples(tuples / "new.pkl", tiny_tuples[1])
    (tuples / "damaged.pkl").write_bytes(b"?")
    set_aside("local", folder.parent)
    assert sorted(path.name for path in tuples.iterdir()) == ["damaged.pkl", "new.pkl"]


@pytest.mark.parametrize("steps", range(4))
def test_the_same_command_completes_what_a_kill_left(folder, tiny_tuples, monkeypatch, steps):
    for name in ("first", "second"):
        outdated = replace(tiny_tuples[0], torch_version="2.14.0")
        write_model_tuples(folder.parent / "tuples" / f"{name}.pkl", outdated)
    before, name = contents(folder), aside_name(folder)
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        left = iter(range(steps))
        for step in ("unlink", "rename"):
            patch.setattr(Path, step, killed_before(getattr(Path, step), left))
        set_aside("local", folder.parent)
    if folder.exists():
        set_aside("local", folder.parent)
    assert contents(folder.parent / name) == before
    assert list((folder.parent / "tuples").iterdir()) == []


def killed_before(function, left):
    def step(*arguments, **named):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return function(*arguments, **named)

    return step


@pytest.mark.parametrize("target", ["lokal", "tuples", "../results/local"])
def test_only_a_target_is_set_aside(folder, target):
    (folder.parent / "tuples").mkdir()
    with pytest.raises(OpcostError, match="there is no target"):
        set_aside(target, folder.parent)
    assert folder.exists()


def test_the_command_sets_targets_aside(folder, monkeypatch):
    gpu = target_in(folder.parent, "gpu", GPU)
    names = [aside_name(folder), aside_name(gpu)]
    monkeypatch.chdir(folder.parents[1])
    result = CliRunner().invoke(main, ["set-aside", "local", "gpu"])
    assert result.exit_code == 0
    assert f"results/local is now results/{names[0]}." in result.output
    assert all((folder.parent / name / "device.json").exists() for name in names)


def test_nothing_is_set_aside_while_a_run_goes_on(folder, monkeypatch):
    monkeypatch.chdir(folder.parents[1])
    with closing(RunLock()) as lock:
        lock.hold("snakemake")
        result = CliRunner().invoke(main, ["set-aside", "local"])
        assert result.exit_code == 1
        assert f"in use by process {os.getpid()}" in result.output
        assert folder.exists()
    assert CliRunner().invoke(main, ["set-aside", "local"]).exit_code == 0


def test_of_a_target_that_was_set_aside_already_no_measurement_is_promised(folder, monkeypatch):
    monkeypatch.chdir(folder.parents[1])
    name = set_aside("local", folder.parent)
    result = CliRunner().invoke(main, ["set-aside", name])
    assert f"If the study has a target {name}, the next run measures it." in result.output


@pytest.mark.parametrize("container", [False, True])
def test_a_containers_machine_id_tells_nothing_of_the_machine(monkeypatch, container):
    files = {"/etc/machine-id": "of-the-image", "/sys/class/dmi/id/product_uuid": ""}
    monkeypatch.setattr(machine_id, "_text", lambda path: files[str(path)])
    monkeypatch.setattr(machine_id, "_in_container", lambda: container)
    assert (machine_id.machine_id_hash() is None) == container
    assert "of-the-image" not in str(machine_id.machine_id_hash())


def test_a_run_stops_before_it_mixes_two_pytorches_or_sets_the_old_rows_aside(done):
    device = done.root / "results/local/device.json"
    device.write_text(json.dumps(json.loads(device.read_text()) | {"torch_version": "2.0.0"}))
    assert not any(rule.startswith("benchmark") for rule in done.started())
    next(done.root.glob(MEASUREMENTS)).unlink()
    before = stamps(done)
    stopped = done.run()
    assert stopped.returncode != 0
    assert "PyTorch: 2.0.0 before, " in stopped.stderr
    assert "opcost set-aside local" in stopped.stderr
    assert stamps(done) == before
    configure(done, environment_changes="set_aside", rounds=2)
    folder = done.root / "results/local"
    old, name = contents(folder), aside_name(folder)
    assert done.run().returncode == 0
    assert len(stamps(done)) == 6
    assert contents(folder.with_name(name)) == old
