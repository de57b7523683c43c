"""The code of a model may do anything: extraction ends, and reports it with its line."""

import importlib
import os
import time

import pytest
from opcost.commands import main
from opcost.errors import OpcostError
from opcost.measuring.supervision import check_inputs_fit
from opcost.memory import resident_bytes
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.study import ExtractionSettings
from opcost.tuples.calls import model_calls
from opcost.tuples.containment import tuples_of
from opcost.tuples.extraction import extract_model_tuples

from tests.test_isolation import alive, wait_for

LIMITS = ExtractionSettings(timeout_s=60)


def line(definition, number):
    return f"{definition.factory.partition(':')[0]}.py:{number}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit(0)", "called sys.exit(0)"),
        ("raise MemoryError", "out of memory"),
        ("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
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


@pytest.mark.parametrize("name", ["statistics", "opcost", "sys"])
def test_a_file_may_have_the_name_of_another_module(tmp_path, name):
    (tmp_path / f"{name}.py").write_text("from torch.nn import ReLU as build")
    definition = ModelDefinition("mine", (InputSpec((2,)),), factory=f"{name}:build")
    [record] = tuples_of(definition, tmp_path, LIMITS).tuples
    assert record.operator_tuple.name == "relu"


def test_a_package_with_the_name_of_another_one_is_named(tmp_path):
    (tmp_path / "email").mkdir()
    for file, text in (("__init__", ""), ("message", "def build(): ...")):
        (tmp_path / "email" / f"{file}.py").write_text(text)
    definition = ModelDefinition("mine", (InputSpec((2,)),), factory="email/message.py:build")
    importlib.import_module("email.message")
    with pytest.raises(
        OpcostError, match=r"another module is named 'email.message' \(.*rename"
    ) as caught:
        tuples_of(definition, tmp_path, LIMITS)
    assert f"instead of {tmp_path}/email/message.py" in str(caught.value)


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
