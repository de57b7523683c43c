"""The code of a model may do anything: it is reported with its line, and no measurement lies."""

import json
import os
import sys
import textwrap
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from opcost.commands import main
from opcost.errors import OpcostError
from opcost.measuring.benchmark import measure
from opcost.measuring.subjects import ModelSubject
from opcost.measuring.supervision import check_inputs_fit
from opcost.memory import resident_bytes
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.models.process_state import ProcessState
from opcost.models.source import source_digest
from opcost.study import ExtractionSettings
from opcost.tuples.calls import model_calls
from opcost.tuples.containment import extract_contained, tuples_of
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.model_tuples import write_model_tuples
from torch.utils.flop_counter import FlopCounterMode

from tests.stations import station_of
from tests.test_isolation import alive, wait_for


def ignore(*_):
    """A trace function."""


LIMITS = ExtractionSettings(timeout_s=60)


@pytest.fixture
def model(tmp_path, monkeypatch, request):
    """Writes a factory, of which a body is given, and defines its model; by its own module name."""

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


def line(definition, number):
    return f"in {definition.factory.partition(':')[0]}.py:{number}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit(0)", "called sys.exit(0)"),
        ("sys.exit(3)", "called sys.exit(3)"),
        ("os._exit(0)", "called os._exit(0)"),
        ("raise MemoryError", "out of memory"),
        ("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
        ("raise ValueError", "ValueError"),
        ("raise GeneratorExit", "raised GeneratorExit"),
        ("raise type('Odd', (Exception,), {'__str__': lambda self: 1})", "Odd"),
        ("import json; json.dumps = lambda *a, **k: 1 / 0", "division by zero"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("os.fork()", "forked a copy of its process"),
        ("if os.fork() == 0: time.sleep(600)", "left a process running"),
    ],
)
def test_a_factory_that_does_not_return_is_reported_with_its_line(model, tmp_path, body, message):
    definition = model(body)
    with pytest.raises(OpcostError) as caught:
        tuples_of(definition, tmp_path, LIMITS)
    said = str(caught.value)
    assert said.startswith("model mine: ")
    assert message in said
    assert line(definition, 5) in said


def test_a_factory_that_hangs_is_given_up(model, tmp_path):
    definition = model("while True: pass")
    with pytest.raises(OpcostError, match="gave up after 2 s") as caught:
        tuples_of(definition, tmp_path, ExtractionSettings(timeout_s=2))
    assert line(definition, 5) in str(caught.value)
    assert "extraction.timeout_s" in str(caught.value)


def test_a_factory_that_takes_too_much_memory_is_given_up(model, tmp_path):
    definition = model("hoard = b'x' * 2**29; time.sleep(60)")
    limits = ExtractionSettings(60, memory_gib=resident_bytes(os.getpid()) / 2**30 + 0.25)
    with pytest.raises(OpcostError, match=r"used more than .* GiB .*extraction.memory_gib"):
        tuples_of(definition, tmp_path, limits)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("sys.exit(0)", "it called sys.exit(0)"),
        ("def f(:", "invalid syntax"),
        ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
        ("1 / 0", "division by zero"),
    ],
)
def test_a_module_that_cannot_be_imported_is_reported_with_its_line(
    model, tmp_path, module, message
):
    definition = model("pass", before=module)
    with pytest.raises(OpcostError) as caught:
        tuples_of(definition, tmp_path, LIMITS)
    assert message in str(caught.value)
    assert line(definition, 3) in str(caught.value)


@pytest.mark.parametrize("edited", ["def build(): return 1", "def build(:", None])
def test_a_factory_whose_file_changed_since_the_run_began_leaves_no_row(
    model, measured, tmp_path, edited
):
    definition = model("pass")
    digest = source_digest(definition.factory, tmp_path)
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


def test_a_comment_in_the_file_of_a_factory_changes_nothing(model, tmp_path):
    definition = model("pass")
    digest = source_digest(definition.factory, tmp_path)
    [file] = tmp_path.glob("model_*.py")
    file.write_text(file.read_text() + "# the end")
    assert tuples_of(replace(definition, source_digest=digest), tmp_path, LIMITS).calls


@pytest.mark.parametrize("name", ["statistics", "opcost", "sys"])
def test_a_file_with_the_name_of_another_module_is_named(tmp_path, name):
    (tmp_path / f"{name}.py").write_text("from torch.nn import ReLU as build")
    definition = ModelDefinition("mine", (InputSpec((2,)),), factory=f"{name}:build")
    with pytest.raises(
        OpcostError, match=rf"another module is named '{name}' \(.*rename"
    ) as caught:
        tuples_of(definition, tmp_path, LIMITS)
    assert f"instead of {tmp_path / name}.py" in str(caught.value)


def test_a_missing_factory_is_reported_with_the_file_that_was_imported():
    definition = ModelDefinition("mine", (InputSpec((2,)),), factory="statistics:build")
    with pytest.raises(
        OpcostError, match=r"module 'statistics' \(.*statistics.py\) has no callable"
    ):
        tuples_of(definition, None, LIMITS)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return nn.LazyLinear(4)", "it has lazy parameters: use modules with sizes"),
        ("return torch.jit.script(nn.Linear(4, 4))", "return the module that was scripted"),
        ("m = nn.Linear(4, 4); m.eval = lambda: 1 / 0; return m", "division by zero"),
    ],
)
def test_a_module_that_cannot_be_prepared_is_no_bug_of_opcost(model, tmp_path, body, message):
    with pytest.raises(OpcostError, match="cannot be prepared for inference") as caught:
        tuples_of(model(body), tmp_path, LIMITS)
    assert message in str(caught.value)
    assert "bug" not in str(caught.value)


def test_a_forward_that_exits_is_reported_with_its_line(model, tmp_path):
    definition = model("nn.Linear.forward = lambda self, x: sys.exit(0)")
    with pytest.raises(OpcostError) as caught:
        tuples_of(definition, tmp_path, LIMITS)
    assert "it called sys.exit(0)" in str(caught.value)
    assert line(definition, 5) in str(caught.value)


def test_a_thread_that_computes_on_is_reported_with_its_line(model, tmp_path):
    definition = model(
        "threading.Thread(target=spin, daemon=True).start()", "def spin():\n  while True: pass"
    )
    with pytest.raises(OpcostError, match="left a thread running that computes") as caught:
        tuples_of(definition, tmp_path, LIMITS)
    assert line(definition, 4) in str(caught.value)


def test_a_thread_that_waits_may_stay(model, tmp_path):
    definition = model("threading.Thread(target=time.sleep, args=[600], daemon=True).start()")
    assert tuples_of(definition, tmp_path, LIMITS).calls


@pytest.mark.parametrize(
    ("before", "pool"),
    [
        ("from concurrent.futures import ThreadPoolExecutor as Pool", "Pool(1)"),
        ("from multiprocessing.pool import ThreadPool as Pool", "Pool(1)"),
        ("from multiprocessing.pool import ThreadPool as Pool", "POOL"),
    ],
)
@pytest.mark.parametrize("condition", ["True", "x.sum() < 1e9"])
def test_a_forward_that_executes_operators_in_other_threads_is_refused(
    model, tmp_path, before, pool, condition
):
    body = f"""
    POOL = {pool.replace("POOL", "Pool(1)")}
    class Parallel(nn.Module):
        def forward(self, x):
            return [*{pool}.map(torch.relu, [x])][0] if {condition} else x
    return Parallel()
    """
    with pytest.raises(OpcostError, match=r"executes operators in other threads \(aten.relu"):
        tuples_of(model(body, before), tmp_path, LIMITS)


def test_threads_without_operators_may_start_in_forward_and_others_in_the_factory(model, tmp_path):
    body = """
    class Waiting(nn.Module):
        def forward(self, x):
            thread = threading.Thread(target=time.sleep, args=[0.01])
            thread.start()
            thread.join()
            return x.relu()
    first = threading.Thread(target=torch.ones, args=[4])
    first.start()
    first.join()
    return Waiting()
    """
    assert len(tuples_of(model(body), tmp_path, LIMITS).calls) == 1


def test_what_a_hanging_factory_started_ends_with_it(model, tmp_path):
    definition = model(
        """
        if os.fork() == 0:
            os.setsid()
            open("pid", "w").write(str(os.getpid()))
        time.sleep(600)
        """
    )
    with pytest.raises(OpcostError, match="gave up"):
        tuples_of(definition, tmp_path, ExtractionSettings(timeout_s=2))
    wait_for(lambda: not alive(int((tmp_path / "pid").read_text())))


def test_a_model_in_a_process_of_its_own_is_the_same(model, tmp_path):
    definition = model("pass")
    contained = tuples_of(definition, tmp_path, LIMITS)
    expected = extract_model_tuples(definition, tmp_path)
    assert (contained.tuples, contained.calls) == (expected.tuples, expected.calls)


def test_a_factory_that_exits_does_not_end_explain(model, capfd):
    from click.testing import CliRunner

    definition = model("sys.exit(0)")
    result = CliRunner().invoke(main, ["explain", definition.factory, "--input", "2x4"])
    assert result.exit_code == 1
    assert "it called sys.exit(0)" in result.stderr


def test_settings_travel_to_jobs_as_text():
    settings = ExtractionSettings(5, 1.5)
    assert ExtractionSettings.from_json(settings.to_json()) == settings
    assert json.loads(ExtractionSettings().to_json()) == {"timeout_s": 1800, "memory_gib": None}


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
        lambda: FlopCounterMode(display=False).__enter__(),
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
    digest = source_digest(definition.factory, tmp_path)
    assert tuples_of(replace(definition, source_digest=digest), Path("."), LIMITS).calls


def test_another_default_type_is_refused_at_extraction(model, tmp_path):
    definition = model("torch.set_default_dtype(torch.float64)")
    with pytest.raises(OpcostError, match=r"the default dtype from torch.float32 to torch.float64"):
        model_calls(definition, tmp_path)
    assert torch.get_default_dtype() == torch.float32


@pytest.fixture
def measured(cpu, watch, conditions, tmp_path):
    """The row of a model."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)

    def row(definition, extracted=None):
        subject = ModelSubject(definition, tmp_path, extracted)
        return measure(subject, station_of(cpu, conditions, watch))

    return row


def test_a_model_is_measured_with_the_targets_threads(model, measured):
    row = measured(model("torch.set_num_threads(2)"))
    assert row["status"] == "ok"
    assert row["flags"].count("state_changed") == 1
    assert torch.get_num_threads() == 1


def test_a_model_that_leaves_settings_alone_is_not_flagged(model, measured):
    assert not {"state_changed", "calls_vary"} & set(measured(model("pass"))["flags"])


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
            return x.relu() if self.runs < 2 else x.relu().exp().log()
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
    assert (row["differing_calls"], row["flags"]) == ([], [])


@pytest.mark.parametrize("end", ["sys.exit(0)", "sys.exit(3)", "os._exit(0)"])
def test_a_whole_model_that_exits_is_a_row_with_the_reason(model, measured, end):
    definition = model(end)
    row = measured(definition)
    assert row["status"] == "error"
    assert f"it called {end}" in row["error"]
    assert line(definition, 5) in row["error"]


def test_inputs_are_checked_before_memory_is_taken(cpu):
    huge = ModelDefinition("huge", (InputSpec((200_000, 3, 2240, 2240)),), model="resnet18")
    with pytest.raises(Exception, match=r"the inputs need 22,430 GiB; .* GiB are free"):
        check_inputs_fit(huge, cpu)


def test_inputs_are_not_drawn_to_be_described():
    started = time.monotonic()
    calls = model_calls(
        ModelDefinition("m", (InputSpec((10**9, 4)),), factory="torch.nn:ReLU")
    ).calls
    assert [str(call.operator_tuple) for call in calls] == ["relu(1000000000x4)"]
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2**40, 2**40), "no tensor is larger than"),
        ((2 * 10**18,), "more than opcost can count"),
    ],
)
def test_sizes_beyond_any_tensor_are_refused(shape, message):
    with pytest.raises(OpcostError, match=message):
        extract_model_tuples(ModelDefinition("m", (InputSpec(shape),), factory="torch.nn:ReLU"))
