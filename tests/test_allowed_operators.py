"""A tuple from a stranger computes on tensors, and reaches nothing else: over all schemas."""

import re
from pathlib import Path

import pytest
import torch
import torchvision  # noqa: F401  registers its operators
from opcost.measuring.benchmark import measure
from opcost.measuring.subjects import OperatorSubject
from opcost.tuples.allowed_operators import ALLOWED_NAMESPACES, TEXTS, refusal
from opcost.tuples.operator_tuple import Constant, OperatorTuple, TensorSpec
from opcost.tuples.replay import UnsupportedOperator, rebuild, resolve
from opcost.tuples.tuple_record import TupleRecord

from tests.stations import station_of

SPEC = TensorSpec((2, 3), "float32")

OF_TORCHVISION_MODELS = (
    (Path(__file__).parent / "operators_of_torchvision.txt").read_text(encoding="utf-8").split()
)
"""What models of torchvision execute: of all families but `quantization`, not of every variant of
the mask and keypoint detectors."""


def operators():
    """Every operator that torch knows under the namespaces that may be called."""
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        if namespace in ALLOWED_NAMESPACES:
            packet = getattr(getattr(torch.ops, namespace), name)
            yield getattr(packet, schema.overload_name or "default")


ALL = {str(operator): operator for operator in operators()}
REFUSED = {name: reason for name, each in ALL.items() if (reason := refusal(each)) is not None}
DISPATCHED = {name for name in ALL if "TorchScript" not in REFUSED.get(name, "")}


def test_most_of_all_operators_may_be_called():
    assert len(DISPATCHED) > 3000
    assert len(REFUSED.keys() & DISPATCHED) < 50


def arguments(names):
    return [argument for name in names for argument in ALL[name]._schema.arguments]


def types(argument):
    return set(re.findall(r"[A-Z_a-z.]{3,}", str(argument.real_type))) - {"Optional", "List"}


def test_operators_that_may_be_called_take_tensors_numbers_and_options():
    allowed = arguments(ALL.keys() - REFUSED.keys())
    assert set.union(*map(types, allowed)) == {
        *("Tensor", "number", "int", "float", "bool", "str"),
        *("ScalarType", "Layout", "MemoryFormat", "Device", "Generator"),
    }


def test_texts_of_the_dispatchers_operators_are_options_or_refused():
    texts = {each.name for each in arguments(DISPATCHED) if "str" in types(each)}
    assert texts - TEXTS == {"filename", "s", "a", "b", "api_name", "assert_msg"}
    refused = {each.name for each in arguments(DISPATCHED & REFUSED.keys())}
    assert texts - TEXTS <= refused


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        ("aten.from_file.default", "argument 'filename' is text that may name a file"),
        ("aten.save.default", "exists only in TorchScript"),
        ("aten.manual_seed.default", "exists only in TorchScript"),
        ("aten._print.default", "text that may name a file or be shown"),
        ("aten.set_.source_Storage", "a Storage"),
        ("aten.record_stream.default", "a Stream"),
        ("aten._cufft_set_plan_cache_max_size.default", "neither takes nor returns tensors"),
    ],
)
def test_an_operator_that_reaches_beyond_tensors_is_not_called(operator, reason):
    with pytest.raises(UnsupportedOperator, match=f"{operator} may not be called: .*{reason}"):
        resolve(operator)


def test_what_models_execute_may_be_called():
    assert len(OF_TORCHVISION_MODELS) > 100
    for operator in OF_TORCHVISION_MODELS:
        assert resolve(operator) is ALL[operator]


@pytest.mark.parametrize("name", ["aten.relu.overloads", "aten.relu.__class__", "aten..", "aten"])
def test_what_is_no_operator_does_not_exist(name):
    with pytest.raises(UnsupportedOperator, match="does not exist"):
        resolve(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device", "cuda:1"),
        ("dtype", Constant("dtype", "load")),
        ("dtype", Constant("layout", "float32")),
        ("dtype", Constant("nonsense", "float32")),
    ],
)
def test_a_tuple_chooses_no_device_and_nothing_of_torch_but_its_constants(name, value):
    zeros = OperatorTuple("aten.zeros.default", ((name, value), ("size", (2, 3))))
    with pytest.raises(UnsupportedOperator, match=f"must not choose '{name}'|torch has no"):
        rebuild(zeros, [])


def measured(operator_tuple, cpu, watch, conditions):
    record = TupleRecord(operator_tuple, (SPEC,), True, 0, 0, ())
    return measure(OperatorSubject(record), station_of(cpu, conditions, watch))


def test_a_file_named_by_a_tuple_is_not_made(cpu, watch, conditions, tmp_path):
    path = tmp_path / "made"
    arguments = (("filename", str(path)), ("shared", True), ("size", 1000))
    row = measured(OperatorTuple("aten.from_file.default", arguments), cpu, watch, conditions)
    assert row["status"] == "unsupported"
    assert "'filename'" in row["error"]
    assert not path.exists()


@pytest.mark.parametrize(
    "operator_tuple",
    [
        OperatorTuple("aten.relu.default", (("self", TensorSpec((10**15,), "float32")),)),
        OperatorTuple("aten.zeros.default", (("size", (10**15,)),)),
        OperatorTuple("aten.repeat.default", (("repeats", (10**14, 1)), ("self", SPEC))),
        OperatorTuple(
            "aten.neg.default", (("self", TensorSpec((10**9, 10**6), "float32", (0, 0))),)
        ),
    ],
    ids=str,
)
def test_an_absurd_size_is_out_of_memory(operator_tuple, cpu, watch, conditions):
    assert measured(operator_tuple, cpu, watch, conditions)["status"] == "out_of_memory"


def test_memory_that_linux_does_not_map_is_out_of_memory(cpu, watch, conditions, monkeypatch):
    def refused(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("opcost.devices.processor.mmap.mmap", refused)
    row = measured(OperatorTuple("aten.relu.default", (("self", SPEC),)), cpu, watch, conditions)
    assert row["status"] == "out_of_memory"


def test_work_that_asks_for_more_memory_than_is_free_fails(cpu):
    """Before it touches what it was promised: Linux promises more than there is."""
    elements = 2 * cpu.free_memory_bytes()
    torch.empty(1024, dtype=torch.uint8)
    with cpu.within_free_memory(), pytest.raises(RuntimeError, match="can't allocate memory"):
        torch.empty(elements, dtype=torch.uint8)
