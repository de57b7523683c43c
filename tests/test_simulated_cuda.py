"""The simulated GPU does what it is told, and knows what it did."""

import json
import subprocess
import sys

import pandas as pd
import pyarrow.parquet as pq
import pytest
from opcost.costs.answers import costs_of_models
from opcost.rows.flags import PACE_DIFFERS
from opcost.rows.quantities import ENERGY

from tests.benchmarks.simulated_gpu import true_costs
from tests.checkout import configure
from tests.simulated_cuda import gpu
from tests.simulated_nvml.points import CardPoint

MISSING = gpu.missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    return gpu.SimulatedGpu(tmp_path_factory.mktemp("simulated_cuda") / "gpu")


@pytest.fixture(scope="module")
def probes(simulated):
    """What tests/simulated_cuda/probes.py finds, by probe."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.simulated_cuda.probes"]
    ran = subprocess.run(command, env=simulated.environment(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture
def found(probes):
    """What a probe finds; it has not failed."""

    def find(name):
        assert "failed" not in probes[name], probes[name]["failed"]
        return probes[name]

    return find


@pytest.fixture
def launches(found, simulated):
    """How often each kernel and event occurred in a probe."""

    def count(name):
        counts = {}
        for ran in simulated.ran(found(name)["process"]):
            counts[ran.name] = counts.get(ran.name, 0) + ran.launches
        return counts

    return count


def test_events_behind_a_sleep_and_a_graph_show_the_devices_time(found):
    times = found("times")
    assert times["behind"] == pytest.approx(times["true"], rel=1e-5)
    assert times["graph"] == pytest.approx(times["true_graph"], rel=1e-5)
    assert times["true_graph"] == pytest.approx(times["true"])
    assert times["loop"] >= times["true"] * (1 - 1e-5)
    assert times["sleep"] == pytest.approx(0.1)


def test_a_replay_is_one_launch_of_all_its_kernels(launches):
    counts = launches("times")
    assert counts["cudaGraphLaunch"] == 2
    # The loop ran three times, and in the graph twice.
    assert sum(number for name, number in counts.items() if "TensorCompare" in name) == 1000


def test_a_kernel_takes_the_time_and_power_that_it_is_given(found, simulated):
    probe = found("named_kernels")
    assert probe["seconds"] == pytest.approx(10e-6)
    assert probe["joules"] == pytest.approx(10e-6 * 350)
    (relu,) = (ran for ran in simulated.ran(probe["process"]) if "TensorCompare" in ran.name)
    assert (relu.seconds, relu.watts, relu.launches) == (pytest.approx(10e-6), 350, 1)


def test_matrix_products_and_convolutions_follow_a_roofline(found):
    probe, scale, floor_s = found("rooflines"), 3, 2e-6
    flops = 2 * 1024**3
    assert probe["float32"] == pytest.approx(scale * (floor_s + flops / 50e12))
    assert probe["tf32"] == pytest.approx(scale * (floor_s + flops / 200e12))
    assert probe["float16"] == pytest.approx(scale * (floor_s + flops / 400e12))
    flops = 2 * 8 * 64 * 56 * 56 * 64 * 9
    assert probe["convolution"] == pytest.approx(scale * (floor_s + flops / 50e12))


def test_only_a_target_with_cudnn_benchmark_uses_the_algorithm_that_cudnn_finds(launches):
    counts = launches("algorithms")
    assert counts["cudnnConvolutionForward"] == 2
    assert counts["cudnnConvolutionForward, tried"] == 3


def test_launches_block_while_the_queue_is_full(found, launches):
    probe = found("queue")
    assert probe["done_s"] >= 1400 * 100e-6
    # The last can be launched only when all but 1,024 are done.
    assert probe["enqueued_s"] >= (1400 - 1024) * 100e-6
    assert launches("queue")["queue full"] >= 1
    assert "queue full" not in launches("times")


def test_the_host_may_be_slow(found):
    probe = found("slow_host")
    assert probe["start"] >= 0.3
    assert probe["launches"] >= 20 * 500e-6


def test_waiting_for_the_device_breaks_a_capture(found):
    probe = found("blocking_operators_in_graphs")
    assert "cudaErrorStreamCaptureInvalidated" in probe["error"]
    assert probe["replayed"] > 0


def test_memory_is_limited_and_shared_with_other_processes(found):
    probe = found("memory")
    assert probe["total"] == 8 << 30
    assert probe["free"] == 5.5 * 2**30
    assert "OutOfMemoryError" in probe["error"]


@pytest.mark.parametrize("direction", ["to_device", "to_host"])
def test_copies_of_pinned_memory_are_faster_and_the_host_does_not_wait_for_them(found, direction):
    size, latency_s = 2**22, 2e-6
    pinned, pageable = found("host_copies")["pinned"], found("host_copies")["pageable"]
    assert pinned["is_pinned"]
    assert not pageable["is_pinned"]
    assert pinned[direction]["seconds"] == pytest.approx(latency_s + size / 20e9)
    assert pageable[direction]["seconds"] == pytest.approx(latency_s + size / 5e9)
    assert not pinned[direction]["waits"]
    assert pageable[direction]["waits"]


def test_a_fork_of_a_process_with_a_gpu_has_none(found):
    probe = found("fork")
    assert probe["child"] == 3  # cudaErrorInitializationError
    assert probe["parent"] == "no error"


def test_a_lost_gpu_stays_lost_and_nvml_says_so(found, launches):
    probe = found("lost")
    assert "cudaErrorLaunchFailure" in probe["error"]
    assert "cudaErrorLaunchFailure" in probe["again"]
    assert "GpuIsLost" in probe["nvml"]
    assert sum(number for name, number in launches("lost").items() if "relu" in name.lower()) <= 51


def test_each_gpu_has_its_own_clock(found):
    probe = found("two_gpus")
    assert probe["count"] == 2
    assert [f"GPU-{each}" for each in probe["uuids"]] == [gpu.UUID, gpu.SECOND_UUID]
    assert probe["second_idle"]


def test_the_card_of_nvml_draws_what_the_kernels_draw(found):
    probe = found("energy")
    assert probe["drawn"] == pytest.approx(probe["true"], rel=1e-3)


def test_models_call_nothing_that_is_not_simulated(launches):
    assert [name for name in launches("models") if name.startswith(gpu.STUB)] == []


def test_call_overhead_is_the_hosts_however_slow_the_gpu_is(found, launches):
    overhead = found("call_overhead")
    assert 0 < overhead["call"] < 1e-3
    assert 0 < overhead["view"] < 1e-3
    assert overhead["displaced"] is None
    assert "queue full" not in launches("call_overhead")


def test_a_call_that_is_not_simulated_is_counted(launches):
    assert launches("solving")[f"{gpu.STUB}cublasStrsmBatched"] == 1


def test_every_process_that_initialises_cuda_is_known(simulated, probes):
    with_gpu = [
        process
        for process in simulated.processes()
        if "cuInit" in (ran.name for ran in simulated.ran(process))
    ]
    assert sorted(with_gpu) == sorted(found["process"] for found in probes.values())


@pytest.mark.slow
def test_the_tests_of_a_gpu_pass_on_the_simulated_one(simulated):
    """Except three: it has no caches, how time grows is its own choice, and the study below
    characterises its sensor.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu"]
    command += ["-m", "gpu"]
    for test in (
        "operands_are_slower_from_memory_than_from_the_cache",
        "the_power_sensor_is_characterised",
        "time_grows_with_work",
    ):
        command += ["--deselect", f"tests/gpu/test_cuda.py::test_{test}"]
    ran = subprocess.run(command, env=simulated.environment(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    assert "20 passed, 1 skipped" in ran.stdout


@pytest.mark.slow
def test_a_study_measures_time_and_energy_of_the_simulated_gpu(tmp_path, checkout):
    simulated = gpu.SimulatedGpu(tmp_path / "gpu")
    configure(
        checkout,
        models=["tiny_mlp", "tiny_cnn", "tiny_attention"],
        targets={"local": {"device": "auto", "threads": 1}},
        launch_modes=["graph"],
    )
    ran = subprocess.run(
        checkout.command(),
        cwd=checkout.root,
        env=simulated.environment(),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    # Each job that measures has a context of its own, and no other process has one.
    contexts = [
        process
        for process in simulated.processes()
        if "context" in (line.name for line in simulated.ran(process))
    ]
    results = checkout.root / "results"
    database = pq.read_table(results / "database.parquet").to_pandas()
    assert set(database.status) == {"ok"}
    assert set(database.device_name) == {"NVIDIA Simulated GPU"}
    assert database.energy_reason.isna().all()
    code = checkout.root / "tests/study/models"
    truth = true_costs(checkout.root, simulated.environment(), code)
    for row in database.to_dict("records"):
        seconds, joules = truth[row["tuple_id"]]
        assert row["time_s"] == pytest.approx(seconds, rel=0.02)
        # Of a device that waits for a host with other work, the interval holds the energy.
        energy = ENERGY.read(row)
        near = energy.value == pytest.approx(joules, rel=0.02)
        assert near or energy.low <= joules <= energy.high
    sensor = json.loads(next(results.glob("local/*/sensor.json")).read_text())
    assert sensor["readings"][sensor["meter"]]["refresh_s"] == pytest.approx(0.1, rel=0.05)
    assert sensor["idle_power_w"] == pytest.approx(90, rel=0.02)
    comparison = pd.DataFrame(costs_of_models(results / "answers.parquet"))
    assert comparison.estimate_energy_j.notna().all()
    in_context = comparison.in_context_time_s / comparison.operators_time_s
    assert ((in_context - 1).abs() < 0.05).all()
    overhead = json.loads(next(results.glob("local/*/device.json")).read_text())["overhead"]
    assert all(0 < call_s < 1e-3 > view_s > 0 for call_s, _, view_s, *_ in overhead)
    launches = pq.read_table(results / "launches.parquet").to_pandas()
    graphs = launches[launches.launch_mode == "graph"]
    assert (graphs.time_relative_error.abs() < 0.03).all()
    # Where the host has other work, the power phase has another pace, and the row says so.
    paced = graphs["flags"].map(lambda flags: PACE_DIFFERS in flags)
    assert ((graphs.energy_relative_error.abs() < 0.03) | paced).all()
    assert "[calls] local  tiny_attention: +1 reshape(8x2x4x16@" in ran.stderr + ran.stdout
    assert {"tiny_mlp", "tiny_cnn", "tiny_attention"} == set(comparison.model)
    recordings = len(comparison)
    jobs = len(database) + len(launches) + recordings + len(("identify", "characterise"))
    assert len(contexts) == jobs + len(overhead)


@pytest.mark.slow
def test_a_study_measures_at_operating_points_and_restores_the_gpu(tmp_path, checkout):
    simulated = gpu.SimulatedGpu(tmp_path / "gpu")
    targets = {"gpu": {"device": "cuda:0", "axes": {"power_limit_w": [650, 600]}}}
    configure(checkout, models=["tiny_mlp"], targets=targets, rounds=1)
    point = CardPoint(tmp_path / "card")
    point.set(690)
    ran = subprocess.run(
        checkout.command(),
        cwd=checkout.root,
        env=simulated.environment(point=tmp_path / "card"),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert point.now == (690, 0, 0)
    results = checkout.root / "results"
    database = pq.read_table(results / "database.parquet").to_pandas()
    limits = database.groupby("target").power_limit_w.unique()
    assert {name: [*each] for name, each in limits.items()} == {
        "gpu[power_limit_w=650]": [650],
        "gpu[power_limit_w=600]": [600],
    }
    said = ran.stdout + ran.stderr
    # Each point is visited once, and the sensor is characterised at none.
    assert said.count("waiting until the temperature is steady") == 2
    assert said.count("[sensor] gpu[power_limit_w=") == 1
