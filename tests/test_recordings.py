"""On a GPU, a model's calls are those that the device makes, and not those of its extraction."""

import dataclasses
import itertools
import textwrap

import pytest
import torch
from opcost.costs.comparison import compare_study
from opcost.devices.device_file import DeviceFile, read_device, write_device
from opcost.errors import OpcostError
from opcost.measuring.job import tracing_job
from opcost.measuring.target_identity import TargetFiles
from opcost.measuring.tracing import trace_on
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.models.source import ChangedSource, source_digest
from opcost.results_folder import device_file, recording, target_folder
from opcost.tuples.calls import recorded_calls
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.manifest import collect
from opcost.tuples.model_tuples import calls_hash, read_model_tuples, write_model_tuples
from opcost.tuples.traces import calls_on

from tests.comparisons import noise, row


@pytest.fixture
def cnn(tiny_tuples):
    return addressed(tiny_tuples[1])


def addressed(model):
    """As it is read from its file."""
    return dataclasses.replace(model, address=f"{model.model}-01234567")


@pytest.fixture
def folder(tmp_path):
    """The folder of a target on a device of the name `Card`."""
    folder = target_folder("gpu", "cuda-1thread-01234567", tmp_path)
    folder.mkdir(parents=True)
    write_device(device_file(folder), DeviceFile("cuda:0", "Card"))
    return folder


def record(folder, model, **changes):
    """Write the recording of a model without its last call."""
    there = dataclasses.replace(model, calls=model.calls[:-1], memory=None, device_name="Card")
    path = recording(folder, addressed(model).address)
    path.parent.mkdir(exist_ok=True)
    write_model_tuples(path, dataclasses.replace(there, **changes))
    return path


def test_a_model_that_was_not_recorded_makes_the_calls_extracted(folder, tiny_tuples):
    mlp, cnn = map(addressed, tiny_tuples)
    record(folder, cnn)
    found = calls_on(folder, [mlp, cnn])
    assert found[0] == mlp
    assert found[1].calls == cnn.calls[:-1]


@pytest.mark.parametrize("change", ["device_name", "definition"])
def test_what_was_recorded_on_another_device_or_of_another_model_counts_no_more(
    folder, cnn, change
):
    other = {
        "device_name": "Other card",
        "definition": dataclasses.replace(cnn.definition, seed=1),
    }
    record(folder, cnn, **{change: other[change]})
    assert calls_on(folder, [cnn]) == [cnn]


def test_the_recording_of_a_model_under_another_name_is_refused(folder, cnn):
    other = record(folder, dataclasses.replace(cnn, model="other"))
    other.rename(recording(folder, cnn.address))
    with pytest.raises(OpcostError, match=r"tiny_cnn-01234567\.pkl"):
        calls_on(folder, [cnn])


def definition_of(code, folder):
    module = f"recorded_{next(NUMBERS)}"
    (folder / f"{module}.py").write_text("import os\nimport torch\n" + textwrap.dedent(code))
    factory = f"{module}:Net"
    return ModelDefinition(
        "net",
        (InputSpec((2, 3)),),
        factory=factory,
        source_digest=source_digest(folder, factory),
    )


NUMBERS = itertools.count()
"""A process imports a module of one name once."""

NET = """
class Net(torch.nn.Module):
    def forward(self, x):
        {there}
        return x.relu()
"""
ON_FAKES = "isinstance(x, torch._subclasses.FakeTensor)"


def recorded(cpu, there, folder):
    """What was extracted of a network, and recorded on a device where it does something else."""
    definition = definition_of(NET.format(there=f"if not {ON_FAKES}: {there}"), folder)
    extracted = extract_model_tuples(definition, folder)
    return extracted, trace_on(cpu, definition, folder, extracted)


def test_a_recording_has_the_calls_of_the_device(cpu, tmp_path):
    extracted, there = recorded(cpu, "x = x.t().contiguous().t()", tmp_path)
    assert [record.operator_tuple.name for record, _ in extracted.kernels()] == ["relu"]
    assert [record.operator_tuple.name for record, _ in there.kernels()] == ["contiguous", "relu"]
    assert (there.device_name, there.not_recorded) == (cpu.model_name, None)
    assert there.parameters == extracted.parameters


def test_a_model_that_fails_on_the_device_keeps_the_calls_extracted_and_the_reason(cpu, tmp_path):
    extracted, there = recorded(cpu, "raise MemoryError('of the card')", tmp_path)
    assert there.calls == extracted.calls
    assert "of the card" in there.not_recorded


def test_a_model_that_is_no_longer_its_definition_is_not_recorded(cpu, tmp_path):
    definition = definition_of(NET.format(there="pass"), tmp_path)
    extracted = extract_model_tuples(definition, tmp_path)
    [path] = tmp_path.glob("*.py")
    path.write_text("changed = True")
    with pytest.raises(ChangedSource):
        trace_on(cpu, definition, tmp_path, extracted)


def test_further_sizes_of_a_model_whose_sizes_depend_on_values_depend_on_them(cpu, tmp_path):
    definition = definition_of(NET.format(there="x = x[x > 0]"), tmp_path)
    extracted = extract_model_tuples(definition, tmp_path)
    tuples = [record for record in extracted.tuples if record.operator_tuple.name != "relu"]
    assert any(record.value_dependent for record in tuples)
    without = dataclasses.replace(extracted, tuples=tuple(tuples), calls=())
    there = trace_on(cpu, definition, tmp_path, without)
    found = {record.operator_tuple.name: record.value_dependent for record in there.tuples}
    assert found["relu"]


def test_what_runs_on_the_host_or_moves_between_it_and_the_device_launches_no_kernel():
    """Here, meta tensors are on the device, and tensors of the processor on its host."""

    class Net(torch.nn.Module):
        def forward(self, x):
            grid = torch.linspace(0, 1, 3).neg()
            there = grid.to(x.device)
            x.copy_(grid)
            return (x * torch.tensor(2.0) + there).relu()

    calls = recorded_calls(
        Net(), [torch.zeros(2, 3, device="meta")], {}, "net", torch.device("meta")
    )
    launched = [call.operator_tuple.name for call in calls.calls if call.launches_kernel]
    assert launched == ["mul", "add", "relu"]


@pytest.mark.parametrize(("verified", "known"), [([], True), (None, False)])
def test_there_is_no_sum_of_calls_that_were_neither_recorded_nor_verified(cnn, verified, known):
    there = dataclasses.replace(cnn, not_recorded="out of memory")
    rows = [row(tuple_id=tuple_id) for tuple_id in cnn.by_id]
    whole = row(5e-3) | {"model": "tiny_cnn", "differing_calls": verified}
    [comparison], *_ = compare_study(
        {"local": [there]}, rows, [whole], collect([there], None), {"local": noise()}
    )
    assert (comparison["estimate_time_s"] is not None) == known
    if not known:
        reason = "the calls that the device makes were not recorded: out of memory"
        assert comparison["time_reason"].startswith(reason)


@pytest.mark.parametrize(
    ("measured", "said", "known"),
    [
        ("as now", ["+1 reshape(4x4)"], True),
        ("otherwise", ["+1 reshape(4x4)"], False),
        ("otherwise", [], False),
    ],
)
def test_a_model_may_be_recorded_again_after_it_was_measured(cnn, measured, said, known):
    digest = calls_hash(cnn.launched()) if measured == "as now" else "0" * 16
    rows = [row(tuple_id=tuple_id) for tuple_id in cnn.by_id]
    whole = row(5e-3) | {"model": "tiny_cnn", "differing_calls": said, "calls_hash": digest}
    [comparison], *_ = compare_study(
        {"local": [cnn]}, rows, [whole], collect([cnn], None), {"local": noise()}
    )
    assert (comparison["estimate_time_s"] is not None) == known
    assert bool(comparison["differing_calls"]) == (not known)


@pytest.fixture
def job(cpu, conditions, folder, tmp_path):
    """Records a network, of which `there` happens on the device only, by a job."""
    write_device(
        device_file(folder), DeviceFile("cpu", cpu.model_name, lock_key="cpu", quiet_s=1e-3)
    )

    def run(there):
        definition = definition_of(NET.format(there=f"if not {ON_FAKES}: {there}"), tmp_path)
        extraction, output = tmp_path / "net-01234567.pkl", recording(folder, "net-01234567")
        write_model_tuples(extraction, extract_model_tuples(definition, tmp_path))
        output.parent.mkdir(exist_ok=True)
        files = TargetFiles("gpu", conditions, device_file(folder))
        tracing_job(extraction, tmp_path, files, output)
        return read_model_tuples(output)

    return run


def test_the_job_says_what_differs(job, capfd):
    job("x = x.neg()")
    assert capfd.readouterr().out == "[calls] gpu  net: +1 neg(2x3)\n"


def test_a_death_on_the_device_leaves_the_calls_extracted_and_the_reason(job, folder, capfd):
    there = job("os.kill(os.getpid(), 9)")
    assert "killed by SIGKILL" in there.not_recorded
    assert there.device_name == read_device(device_file(folder)).device_name
    assert "calls of model net: crashed: killed by SIGKILL" in capfd.readouterr().out
