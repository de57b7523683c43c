"""What a model's code changes of its process, calls or file is undone, flagged or refused."""

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from opcost.errors import OpcostError
from opcost.measuring.benchmark import measure
from opcost.measuring.subjects import ModelSubject
from opcost.models.conditions import ProcessState
from opcost.models.source import source_digest
from opcost.tuples.containment import extract_contained, tuples_of
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.model_tuples import write_model_tuples
from torch.utils._python_dispatch import TorchDispatchMode

from tests.stations import station_of
from tests.test_containment import LIMITS, line


def ignore(*_):
    """A trace function."""


class Ignored(TorchDispatchMode):
    """A mode of PyTorch's, not left again."""


@pytest.fixture
def measured(cpu, watch, conditions, tmp_path):
    """The row of a model."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)

    def row(definition, extracted=None):
        subject = ModelSubject(definition, tmp_path, extracted)
        return measure(subject, station_of(cpu, conditions, watch))

    return row


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "the number of threads"),
        (lambda: torch.use_deterministic_algorithms(True), "deterministic algorithms"),
        (lambda: torch.set_flush_denormal(True), "flushing of subnormal numbers"),
        (lambda: torch.set_float32_matmul_precision("medium"), "float32 matmul precision"),
        (
            lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
            "float32 precision of CUDA matmul",
        ),
        (lambda: setattr(torch.backends.mkldnn, "enabled", False), "oneDNN"),
        (lambda: os.chdir("/"), "the working directory from"),
        (lambda: sys.settrace(ignore), "Python's trace function from None to ignore"),
        (lambda: sys.setprofile(ignore), "Python's profile function from None to ignore"),
        (lambda: torch.profiler.profile().start(), "PyTorch's profiler"),
        (lambda: setattr(torch.backends.cudnn, "benchmark", True), "cudnn.benchmark"),
        (lambda: os.umask(0o777), "the umask from"),
        pytest.param(
            lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
            "the processor's cores in use",
            marks=pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
        ),
    ],
)
def test_a_changed_setting_of_the_process_is_named_and_set_back(
    change, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    state = ProcessState()
    change()
    assert any(said in text for text in state.restore("mine"))
    assert state.restore("mine") == []


@pytest.mark.parametrize(
    "change",
    [
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_device("meta"),
        lambda: torch.set_autocast_enabled("cpu", True),
        lambda: Ignored().__enter__(),
    ],
)
def test_a_setting_that_decides_the_operators_is_an_error(change):
    state = ProcessState()
    change()
    with pytest.raises(OpcostError, match=r"model mine: its code changed .* from .* to "):
        state.restore("mine")
    assert state.restore("mine") == []


def test_a_forward_that_leaves_a_dispatch_mode_active_is_refused(model, tmp_path):
    body = """
    from torch.utils.flop_counter import FlopCounterMode
    class Counting(nn.Linear):
        def forward(self, x):
            FlopCounterMode(display=False).__enter__()
            return super().forward(x)
    return Counting(4, 4)
    """
    with pytest.raises(OpcostError, match="changed the active TorchDispatchModes from"):
        tuples_of(model(body), tmp_path, LIMITS)


def test_a_factory_that_changes_the_working_directory_leaves_files_where_they_belong(
    model, measured, tmp_path
):
    finish = partial(write_model_tuples, Path("tuples.pkl"))
    extract_contained(model("os.chdir('/')"), tmp_path, LIMITS, finish)
    assert (tmp_path / "tuples.pkl").is_file()
    row = measured(model("os.chdir('/')"))
    assert row["flags"].count("state_changed") == 1
    assert Path.cwd() == tmp_path


def test_a_forward_on_real_tensors_may_change_the_working_directory(model, tmp_path):
    body = """
    class Moving(nn.Linear):
        def forward(self, x):
            os.chdir("/")
            return super().forward(x) if x.sum() > 0 else x.relu()
    return Moving(4, 4)
    """
    definition = model(body)
    digest = source_digest(tmp_path, definition.factory)
    assert tuples_of(replace(definition, source_digest=digest), Path("."), LIMITS).calls


def test_a_model_is_measured_with_the_targets_threads(model, measured):
    row = measured(model("torch.set_num_threads(2)"))
    assert row["status"] == "ok"
    assert row["flags"].count("state_changed") == 1
    assert torch.get_num_threads() == 1


def test_a_model_that_sets_threads_whenever_it_runs_is_not_measured(model, measured):
    body = """
    class Greedy(nn.Linear):
        def forward(self, x):
            torch.set_num_threads(2)
            return super().forward(x)
    return Greedy(4, 4)
    """
    row = measured(model(body))
    assert row["status"] == "error"
    assert "changed the number of threads from 1 to 2 during the measurement" in row["error"]


def test_a_model_whose_forward_grows_is_flagged(model, measured, tmp_path, capsys):
    body = """
    class Growing(nn.Module):
        runs = 0
        def forward(self, x):
            self.runs += 1
            for _ in range(self.runs):
                x = x.relu()
            return x
    return Growing()
    """
    definition = model(body)
    assert "calls_vary" in measured(definition)["flags"]
    extract_model_tuples(definition, tmp_path)
    assert "executes different calls from run to run" in capsys.readouterr().err


def test_kernels_that_were_not_extracted_are_named(model, measured, tmp_path):
    """Here the device differs because the model looks for fake tensors."""
    body = """
    class Wary(nn.Module):
        def forward(self, x):
            fake = type(x).__name__ == "FakeTensor"
            return x.flatten().exp().log() if fake else x.flatten().exp().exp().reshape(1, -1)
    return Wary()
    """
    definition = model(body)
    extracted = extract_model_tuples(definition, tmp_path)
    row = measured(definition, extracted)
    assert "calls_differ" in row["flags"]
    assert row["differing_calls"] == ["+1 exp(8)", "-1 log(8)"]


def test_a_model_that_makes_the_calls_that_were_extracted_is_not_flagged(model, measured, tmp_path):
    definition = model("return nn.TransformerEncoderLayer(4, 2, 8)")
    row = measured(definition, extract_model_tuples(definition, tmp_path))
    assert row["status"] == "ok"
    assert row["differing_calls"] == []
    assert not {"calls_differ", "calls_vary", "state_changed"} & {*row["flags"]}


@pytest.mark.parametrize("edited", ["def build(): return 1", "def build(:", None])
def test_a_factory_whose_file_changed_since_the_run_began_leaves_no_row(
    model, measured, tmp_path, edited
):
    definition = model("pass")
    digest = source_digest(tmp_path, definition.factory)
    definition = replace(definition, source_digest=digest)
    assert tuples_of(definition, tmp_path, LIMITS).calls
    [file] = tmp_path.glob("model_*.py")
    if edited is None:
        file.unlink()
    else:
        file.write_text(edited)
    for use in (measured, lambda definition: tuples_of(definition, tmp_path, LIMITS)):
        with pytest.raises(OpcostError, match="has changed since the run began"):
            use(definition)


@pytest.mark.parametrize("end", ["sys.exit(0)", "sys.exit(3)"])
def test_a_whole_model_that_exits_is_a_row_with_the_reason(model, measured, end):
    definition = model(end)
    row = measured(definition)
    assert row["status"] == "error"
    assert f"it called {end}" in row["error"]
    assert line(definition, 5) in row["error"]


def test_what_a_model_keeps_of_its_first_run_is_not_among_its_calls(model, tmp_path, capsys):
    body = """
    class Keeping(nn.Module):
        table = None
        def forward(self, x):
            if self.table is None:
                self.table = x.exp()
            return x.relu()
    return Keeping()
    """
    found = extract_model_tuples(model(body), tmp_path)
    assert [each.operator_tuple.name for each in found.tuples] == ["relu"]
    assert "different calls" not in capsys.readouterr().err
