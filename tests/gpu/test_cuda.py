"""On a real NVIDIA GPU: time, energy, cache state and failures are what they should be.

Thresholds hold for any GPU in good order, of a data centre or a desktop.

pytest -m gpu
"""

import dataclasses
import json
import re
import subprocess
import sys

import pytest
import torch
from opcost.devices.device import open_device
from opcost.devices.disturbance import Watch
from opcost.energy.meter import sensor_of
from opcost.energy.meters import open_meter
from opcost.measuring.benchmark import measure
from opcost.measuring.station import characterise_target
from opcost.measuring.subjects import ModelSubject, OperatorSubject
from opcost.measuring.tracing import trace_on
from opcost.models.definition import InputSpec, ModelDefinition, SingleOperator
from opcost.study import Conditions
from opcost.target import Target
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec
from opcost.tuples.tuple_record import TupleRecord

from tests.stations import station_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

QUIET = Watch()
TARGET = Target("cuda", 1, False)


@pytest.fixture(scope="module")
def gpu():
    return open_device(TARGET)


@pytest.fixture
def on_gpu(conditions):
    quick = dataclasses.replace(conditions.measurement, max_time_s=0.5, time_relative_ci=0.02)
    return Conditions(TARGET, quick)


def measured(record, gpu, conditions):
    return measure(OperatorSubject(record), station_of(gpu, conditions, QUIET))


def matmul(size, dtype="bfloat16"):
    spec = TensorSpec((size, size), dtype)
    operator_tuple = OperatorTuple("aten.mm.default", (("mat2", spec), ("self", spec)))
    return TupleRecord(operator_tuple, (spec,), True, 2 * size**3, 3 * spec.bytes)


def relu_in_place(elements):
    """Reads and writes the same memory, so that nothing but the operand takes part of a cache."""
    spec = TensorSpec((elements,), "float32")
    operator_tuple = OperatorTuple("aten.relu_.default", (("self", spec),))
    return TupleRecord(operator_tuple, (spec,), True, 0, 2 * spec.bytes)


def test_the_device_knows_itself(gpu, on_gpu, tmp_path):
    assert gpu.model_name.startswith("NVIDIA")
    assert gpu.last_level_cache_bytes > 2**20
    identify = [sys.executable, "-m", "opcost.jobs", "identify", tmp_path / "device.json"]
    subprocess.run([*identify, "--conditions", on_gpu.to_json()], check=True)
    identity = json.loads((tmp_path / "device.json").read_text())
    assert identity["device_uuid_hash"] == gpu.uuid_hash
    assert identity["quiet_s"] is None
    # What the host does between two calls.
    assert all(0 < call_s < 1e-3 for call_s, *_ in identity["overhead"])


@pytest.fixture
def settled(on_gpu):
    """Large matrix products reach the power limit: clocks fall for seconds until it is kept."""
    return dataclasses.replace(
        on_gpu, measurement=dataclasses.replace(on_gpu.measurement, warm_up_s=4.0)
    )


def test_a_large_matrix_product_keeps_the_gpu_busy_and_draws_power(gpu, settled):
    row = measured(matmul(8192), gpu, settled)
    assert row["status"] == "ok", row["error"]
    assert "launch_bound" not in row["flags"]
    assert row["host_time_s"] < row["time_s"]
    if row["energy_reason"] is None:
        assert row["power_w"] > row["idle_power_w"]
        assert row["energy_j"] == pytest.approx(row["power_w"] * row["time_s"])
        assert "counter_disagrees" not in row["flags"]
        assert "pace_differs" not in row["flags"]
        assert row["power_refreshes"] >= 8
        if row["counter_power_w"] is not None:
            assert row["counter_power_w"] == pytest.approx(row["power_w"], rel=0.12)


def test_time_grows_with_work(gpu, settled):
    small, large = (measured(matmul(size), gpu, settled)["time_s"] for size in (4096, 8192))
    assert 5 < large / small < 12


def test_a_tiny_operator_is_bound_by_its_launch(gpu, on_gpu):
    row = measured(matmul(16), gpu, on_gpu)
    assert "launch_bound" in row["flags"]
    assert row["time_s"] < row["host_time_s"] < 1e-3


def test_memory_is_as_fast_as_it_can_be(gpu, on_gpu):
    memory = torch.cuda.get_device_properties(gpu.torch_device)
    peak = 2 * 1e3 * getattr(memory, "memory_clock_rate", 0) * memory.memory_bus_width / 8
    if not peak:
        pytest.skip("PyTorch does not say how fast the memory is")
    record = relu_in_place(max(2**26, 2 * gpu.last_level_cache_bytes))
    share = record.bytes / measured(record, gpu, on_gpu)["time_s"] / peak
    assert 0.5 < share < 1


@pytest.mark.parametrize("direction", ["{n}, {n}[{memory}]", "{n}[{memory}], {n}"])
def test_copies_between_host_and_device_are_measured(gpu, on_gpu, direction):
    times_s = {}
    for memory in ("pinned", "pageable"):
        call = f"copy_({direction.format(n=2**24, memory=memory)}, non_blocking=True)"
        definition = ModelDefinition("copy", (), operator=SingleOperator(call, ("src",)))
        row = measured(extract_model_tuples(definition).tuples[0], gpu, on_gpu)
        assert row["status"] == "ok", row["error"]
        assert ("waits_for_device" in row["flags"]) == (memory == "pageable")
        times_s[memory] = row["time_s"]
    assert times_s["pinned"] <= times_s["pageable"]
    # No link between a host and a GPU moves a terabyte in a second.
    assert 2**26 / times_s["pinned"] < 1e12


def test_operands_are_slower_from_memory_than_from_the_cache(gpu, on_gpu):
    # A quarter: large caches have two halves, and each part of the GPU is near one of them.
    fits = relu_in_place(gpu.last_level_cache_bytes // 4 // 4)
    times = {}
    for state in ("warm", "cold"):
        settings = dataclasses.replace(on_gpu.measurement, cache_state=state)
        row = measured(fits, gpu, Conditions(TARGET, settings))
        times[state] = row["time_s"]
    assert times["cold"] > 1.1 * times["warm"]


def test_too_large_an_operator_is_a_row_and_the_next_one_is_unharmed(gpu, on_gpu):
    assert measured(relu_in_place(2**40), gpu, on_gpu)["status"] == "out_of_memory"
    assert measured(relu_in_place(2**20), gpu, on_gpu)["status"] == "ok"


def test_a_whole_model_is_measured(gpu, on_gpu):
    definition = ModelDefinition("net", (InputSpec((8, 3, 224, 224)),), model="resnet18")
    row = measure(ModelSubject(definition), station_of(gpu, on_gpu, QUIET))
    assert row["status"] == "ok", row["error"]
    assert row["device_uuid_hash"] == gpu.uuid_hash
    assert row["driver_version"]


@pytest.fixture
def attention():
    """In float32, the layout after attention is such that a reshape copies on a GPU."""
    sizes = {"d_model": 64, "nhead": 4, "dim_feedforward": 128, "batch_first": True}
    factory = "torch.nn:TransformerEncoderLayer"
    inputs = (InputSpec((2, 8, 64)),)
    return ModelDefinition("attention", inputs, factory=factory, arguments=sizes)


def test_kernels_that_only_the_gpu_launches_are_recorded(gpu, on_gpu, attention, tmp_path):
    extracted = extract_model_tuples(attention)
    recorded = trace_on(gpu, attention, tmp_path, extracted)
    [call] = extracted.differing_calls(recorded.launched())
    assert re.match(r"\+1 (reshape|contiguous)\(", call)  # by version
    row = measure(ModelSubject(attention, expected=recorded), station_of(gpu, on_gpu, QUIET))
    assert row["status"] == "ok", row["error"]
    assert row["differing_calls"] == []


def test_kernels_that_were_not_recorded_are_named(gpu, on_gpu, attention):
    extracted = extract_model_tuples(attention)
    row = measure(ModelSubject(attention, expected=extracted), station_of(gpu, on_gpu, QUIET))
    assert row["status"] == "ok", row["error"]
    assert "calls_differ" in row["flags"]
    [call] = row["differing_calls"]
    assert re.match(r"\+1 (reshape|contiguous)\(8x2x4x16@\(64,512,16,1\)", call)  # by version


def test_the_power_sensor_is_characterised(gpu, tmp_path):
    characterise_target("cuda", lambda: gpu, tmp_path / "sensor.json")
    document = json.loads((tmp_path / "sensor.json").read_text())
    if document["meter"] is None:
        pytest.skip(document["meter_reason"])
    reading = document["readings"][document["meter"]]
    assert 0.001 < reading["refresh_s"] < 1
    assert reading["averaging_s"] is None or 0 < reading["averaging_s"] < 2
    assert document["idle_power_w"] > 0
    sensor = sensor_of(open_meter(gpu.kind.name, gpu.uuid), tmp_path / "sensor.json")
    assert sensor.settle_s < 5


def test_work_is_started_without_waiting_for_it(gpu):
    matrix = torch.randn(8192, 8192, device=gpu.torch_device)
    pending = gpu.start(lambda: [torch.mm(matrix, matrix) for _ in range(20)])
    assert not pending()
    gpu.synchronise()
    assert pending()
