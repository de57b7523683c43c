"""What PyTorch finds on the simulated GPU: each probe in a process of its own, all printed as JSON.

A probe runs in a fork that has imported torch and not used CUDA, with settings of its own.
"""

import ctypes
import json
import os
import sys
import time
import traceback

import torch
from opcost.devices.device import open_device
from opcost.devices.disturbance import Watch
from opcost.measuring.overhead import sample_overhead
from opcost.target import Target
from torch import nn

PROBES = {}
CUDA = ctypes.CDLL(None)
CUDA.simulated_cuda_seconds.restype = ctypes.c_double
CUDA.simulated_cuda_joules.restype = ctypes.c_double


def probe(**settings):
    """Register a probe, and what it sets."""

    def register(function):
        PROBES[function.__name__] = (function, settings)
        return function

    return register


def apply(settings) -> None:
    """Set them for this process; the simulated NVML reads the environment when it is loaded."""
    for name, value in settings.items():
        os.environ[f"SIMULATED_{name.upper()}"] = str(value)
        if name == "kernels":
            CUDA.simulated_cuda_kernels(value.encode())
        elif not CUDA.simulated_cuda_set(name.encode(), ctypes.c_double(value)):
            raise ValueError(f"the simulated CUDA has no setting {name}")


def truth(work) -> float:
    """Seconds of the device that the work takes."""
    before = CUDA.simulated_cuda_seconds()
    work()
    return CUDA.simulated_cuda_seconds() - before


def event_s(work, sleep_s=0.0) -> float:
    """Seconds between events around the work, the device kept busy for so long before them."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(int(sleep_s * 1.98e9))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def error_of(work) -> str:
    """How it fails."""
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def graph_of(work) -> torch.cuda.CUDAGraph:
    """The work, captured."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


@probe()
def times():
    values = torch.randn(2**20, device="cuda")

    def loop():
        for _ in range(200):
            values.relu_()

    graph = graph_of(loop)
    return {
        "true": truth(loop),
        "loop": event_s(loop),
        "behind": event_s(loop, sleep_s=0.05),
        "graph": event_s(graph.replay, sleep_s=0.01),
        "true_graph": truth(graph.replay),
        "sleep": truth(lambda: torch.cuda._sleep(198_000_000)),
    }


@probe(kernels="vectorized_elementwise=10:350")
def named_kernels():
    values = torch.zeros(2**20, device="cuda")
    torch.cuda.synchronize()
    joules = CUDA.simulated_cuda_joules()
    seconds = truth(values.relu_)
    return {"seconds": seconds, "joules": CUDA.simulated_cuda_joules() - joules}


@probe(kernel_scale=3)
def rooflines():
    square = torch.zeros(1024, 1024, device="cuda")
    half = square.half()
    result = {"float32": truth(lambda: square @ square), "float16": truth(lambda: half @ half)}
    torch.backends.cuda.matmul.allow_tf32 = True
    result["tf32"] = truth(lambda: square @ square)
    torch.backends.cudnn.allow_tf32 = False
    image = torch.zeros(8, 64, 56, 56, device="cuda")
    weight = torch.zeros(64, 64, 3, 3, device="cuda")
    result["convolution"] = truth(lambda: nn.functional.conv2d(image, weight, padding=1))
    return result


@probe()
def algorithms():
    for tries, size in ((False, 28), (True, 56)):  # a process keeps the algorithm of a size
        where = open_device(Target("cuda", 1, False, cudnn_benchmark=tries)).torch_device
        image = torch.zeros(8, 64, size, size, device=where)
        weight = torch.zeros(64, 64, 3, 3, device=where)
        for _ in range(2 + tries):
            nn.functional.conv2d(image, weight, padding=1)
    return {}


@probe(kernels="vectorized_elementwise=100")
def queue():
    values = torch.zeros(4, device="cuda")
    values.relu_()
    torch.cuda.synchronize()

    begin = time.monotonic()
    for _ in range(1400):
        values.relu_()
    enqueued_s = time.monotonic() - begin
    torch.cuda.synchronize()
    return {"enqueued_s": enqueued_s, "done_s": time.monotonic() - begin}


@probe(host_us=500, initialisation_s=0.2, context_s=0.1)
def slow_host():
    begin = time.monotonic()
    values = torch.zeros(4, device="cuda")
    start_s = time.monotonic() - begin
    begin = time.monotonic()
    for _ in range(20):
        values.relu_()
    return {"start": start_s, "launches": time.monotonic() - begin}


@probe()
def blocking_operators_in_graphs():
    values = torch.zeros(4, device="cuda")
    found = {"error": error_of(lambda: graph_of(lambda: values.sum().item()))}
    values.relu_()
    torch.cuda.synchronize()
    return found | {"replayed": truth(graph_of(values.relu_).replay)}


@probe(memory_gb=8, other_memory_gb=2)
def memory():
    found = {"free": torch.cuda.mem_get_info()[0], "total": torch.cuda.mem_get_info()[1]}
    half = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
    found["error"] = error_of(lambda: torch.empty(3 << 30, dtype=torch.uint8, device="cuda"))
    del half
    torch.cuda.empty_cache()
    torch.empty(5 << 30, dtype=torch.uint8, device="cuda")
    return found


@probe()
def fork():
    values = torch.zeros(4, device="cuda")
    reader, writer = os.pipe()
    if not os.fork():
        count = ctypes.c_int()
        os.write(writer, str(CUDA.cudaGetDeviceCount(ctypes.byref(count))).encode())
        os._exit(0)
    child = int(os.read(reader, 100))
    values.relu_()
    return {"child": child, "parent": error_of(torch.cuda.synchronize)}


@probe(lost_after_launches=50)
def lost():
    import pynvml

    values = torch.zeros(4, device="cuda")
    error = error_of(lambda: [values.relu_() for _ in range(100)])
    pynvml.nvmlInit()
    nvml = error_of(lambda: pynvml.nvmlDeviceGetPowerUsage(pynvml.nvmlDeviceGetHandleByIndex(0)))
    return {"error": error, "again": error_of(torch.cuda.synchronize), "nvml": nvml}


@probe(gpus=2)
def two_gpus():
    second = torch.zeros(4, device="cuda:1")
    found = {"count": torch.cuda.device_count()}
    found["uuids"] = [str(torch.cuda.get_device_properties(number).uuid) for number in range(2)]
    torch.cuda._sleep(100_000_000_000)
    second.relu_()
    torch.cuda.synchronize(1)
    found["second_idle"] = not torch.cuda.current_stream(0).query()
    return found


@probe(kernels="vectorized_elementwise=2000:400", context_w=100)
def energy():
    values = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    card = ctypes.CDLL("libnvidia-ml.so.1")
    for name in ("now", "true_energy_j"):
        getattr(card, f"simulated_{name}").restype = ctypes.c_double
    start, spent = card.simulated_now(), CUDA.simulated_cuda_joules()
    busy = truth(lambda: [values.relu_() for _ in range(50)])
    torch.cuda.synchronize()
    time.sleep(0.05)
    end = card.simulated_now()
    drawn = [card.simulated_true_energy_j(ctypes.c_double(moment)) for moment in (start, end)]
    spent = CUDA.simulated_cuda_joules() - spent
    return {"drawn": drawn[1] - drawn[0], "true": spent + 100 * (end - start - busy)}


@probe()
def models():
    convolutional = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
    convolutional += [nn.Conv2d(8, 8, 3, groups=8), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    convolutional = nn.Sequential(*convolutional, nn.Linear(8, 10))
    attention = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    image, words = torch.zeros(1, 3, 32, 32, device="cuda"), torch.zeros(1, 8, 64, device="cuda")
    with torch.inference_mode():
        for model, given in ((convolutional, image), (attention, words)):
            model.eval().cuda()(given)
            model.half()(given.half())
    return {}


@probe(kernel_scale=100)
def call_overhead():
    device = open_device(Target("cuda", 1, False))
    found = sample_overhead(device, Watch())
    return {
        "call": found.call_s,
        "displaced": found.cold_call_s,
        "view": found.view_call_s,
    }


@probe(host_link_gb_per_s=20, pageable_gb_per_s=5)
def host_copies():
    size = 2**22
    found = {}
    for memory in ("pinned", "pageable"):
        on_host = torch.ones(size, dtype=torch.uint8, pin_memory=memory == "pinned")
        on_device = torch.zeros(size, dtype=torch.uint8, device="cuda")

        def to_device(on_host=on_host, on_device=on_device):
            on_device.copy_(on_host, non_blocking=True)

        def to_host(on_host=on_host, on_device=on_device):
            on_host.copy_(on_device, non_blocking=True)

        found[memory] = {"is_pinned": on_host.is_pinned()}
        for work in (to_device, to_host):
            torch.cuda.synchronize()
            torch.cuda._sleep(int(0.1 * 1.98e9))
            seconds = truth(work)
            waits = torch.cuda.current_stream().query()
            found[memory][work.__name__] = {"seconds": seconds, "waits": waits}
    return found


@probe()
def solving():
    square = torch.eye(4, device="cuda")
    torch.linalg.solve_triangular(square, square, upper=True)
    return {}


def main() -> None:
    """Run each probe in a fork, which writes to a pipe."""
    found = {}
    for name, (function, settings) in PROBES.items():
        reader, writer = os.pipe()
        process = os.fork()
        if not process:
            apply(settings)
            try:
                result = function()
            except BaseException:
                result = {"failed": traceback.format_exc()}
            os.write(writer, json.dumps(result).encode())
            os._exit(0)
        os.close(writer)
        with open(reader) as pipe:
            found[name] = json.loads(pipe.read() or '{"failed": "killed"}') | {"process": process}
        os.waitpid(process, 0)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
