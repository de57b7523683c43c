"""What a call costs in a model beyond its operator, by kind of call. On this CPU.

Small networks, each with calls of mostly one kind, and their operators in a row on the same sizes,
in turn. The difference is Python, dispatch and views.

    PYTHONPATH=scripts python -m tests.benchmarks.between_calls
"""

import statistics

import torch
from opcost.devices.processor import CpuDevice
from opcost.devices.target_device import open_device
from opcost.measuring.operands import Rotation, operand_sets
from opcost.models.construction import inference_conditions
from opcost.target import Target
from opcost.tuples.extraction import extract_module_tuples
from torch import nn
from torch.nn import functional

WIDTH = 64
VISITS = 300


class Functions(nn.Module):
    """Calls functions alone: element by element, and views."""

    def forward(self, x):
        """Of a square matrix."""
        for _ in range(20):
            x = functional.relu(x * 0.5 + x).transpose(0, 1)
        return x


class LinearFunctions(nn.Module):
    """Calls `linear` as a function."""

    def __init__(self):
        super().__init__()
        square = (torch.randn(WIDTH, WIDTH) / 8 for _ in range(30))
        self.weights = nn.ParameterList(map(nn.Parameter, square))

    def forward(self, x):
        """Of rows of `WIDTH` numbers."""
        for weight in self.weights:
            x = functional.linear(x, weight)
        return x


class Attention(nn.Module):
    """Attention as users write it: modules, functions and views."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        """Of batch x length x `WIDTH`."""
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, length, 3, 4, width // 4)
        y = functional.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4).unbind(0))
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


def networks():
    """Name -> network and input."""
    encoder = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True)
    block = nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(inplace=True)
    flatten = nn.Unflatten(1, (8, 8)), nn.Flatten()
    rows, words = torch.randn(8, WIDTH), torch.randn(1, 16, WIDTH)
    return {
        "modules: convolutional blocks": (nn.Sequential(*block * 12), torch.randn(1, 16, 8, 8)),
        "modules: linear": (nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(30))), rows),
        "modules: relu": (nn.Sequential(*(nn.ReLU() for _ in range(40))), rows),
        "modules: views": (nn.Sequential(*flatten * 20), rows),
        "functions: linear": (LinearFunctions(), rows),
        "functions: element by element": (Functions(), torch.randn(WIDTH, WIDTH)),
        "attention": (nn.Sequential(*(Attention() for _ in range(4))), words),
        "encoder": (nn.Sequential(*[encoder] * 4), words),
    }


def main():
    """Print a row for each network."""
    open_device(Target("cpu", 1, False))
    device = CpuDevice()
    print("| network | of modules | further | views | of these, of modules | beyond operators |")
    print("|---|---|---|---|---|---|")
    for name, (network, image) in networks().items():
        model = extract_module_tuples(network.eval(), [image], "network")
        kernels = [model.tuples[call.position].launches_kernel for call in model.calls]
        pairs = list(zip(kernels, model.first_of_module, strict=True))
        with inference_conditions():
            operands = [
                operand_sets(each.operator_tuple, device, Rotation(0), 0, each.outputs).calls[0]
                for each in model.tuples
            ]
            calls = [operands[call.position] for call in model.calls]
            launched = [call for call, kernel in zip(calls, kernels, strict=True) if kernel]
            beyond_s = statistics.median(
                beyond_operators(device, network, image, launched) for _ in range(VISITS)
            )
        counts = [pairs.count(each) for each in ((True, True), (True, False))]
        views = kernels.count(False), pairs.count((False, True))
        numbers = " | ".join(map(str, (*counts, *views)))
        print(f"| {name} | {numbers} | {beyond_s * 1e6:.0f} us |", flush=True)


def beyond_operators(device, network, image, calls):
    """Seconds of the network beyond those of its operators in a row."""

    def in_a_row():
        for call in calls:
            call.operator(*call.args, **call.kwargs)

    network(image)
    whole_s = device.time(lambda: network(image)).host_s
    in_a_row()
    return whole_s - device.time(in_a_row).host_s


if __name__ == "__main__":
    main()
