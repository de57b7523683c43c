"""Do drawn operands suit operators, and take the time of usual ones?

Samples of PyTorch's own tests are called, forward and backward; each operator that they execute is
replayed with drawn operands, as opcost measures it. Each is "ok", "refused" with a remedy, or
"WRONG": an error without one, a crash, or, for calls of some length, a time that differs from the
sample's by more than FACTOR.

    PYTHONPATH=scripts python -m tests.benchmarks.operand_values [PATTERN] > found
    cut -d " " -f 1 found | sort | uniq --count

PyTorch's tests need the package expecttest.
"""

import re
import sys
import warnings
from contextlib import suppress
from functools import partial
from itertools import islice
from timeit import repeat
from types import ModuleType

import torch
from opcost.devices.processor import CpuDevice
from opcost.errors import OpcostError
from opcost.measuring.workload import operator_workload
from opcost.tuples.description import describe, describe_tensor
from opcost.tuples.recorder import launches_kernel
from opcost.tuples.replay import tensors_in_tree
from opcost.tuples.tuple_record import TupleRecord
from opcost.workers.isolation import run_isolated
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.opinfo import core, definitions
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

SAMPLES = 6
SIZES = {"S": 16, "M": 40, "L": 64}
FACTOR, LEAST_S = 2, 5e-6
LIMIT_S = 120


class Seen(TorchDispatchMode):
    """Keeps a call of each distinct tuple: its record, and a function that repeats it."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, inputs = kwargs or {}, tensors_in_tree((args, kwargs))
        kept = tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
        result = func(*args, **kwargs)
        outputs = tensors_in_tree(result)
        with suppress(OpcostError, KeyError):  # sparse or of another type: not extracted
            asked = describe(func, args, kwargs)
            specs = tuple(map(describe_tensor, outputs))
            if launches_kernel(func, asked, inputs, outputs, None):
                record = TupleRecord(asked, specs, True, None, sum(spec.bytes for spec in specs))
                self.calls.setdefault(asked, (record, partial(func, *kept[0], **kept[1])))
        return result


def judged(record, original):
    try:
        workload = operator_workload(record, CpuDevice(), "warm", 0)
    except Exception as error:
        refused = isinstance(error, OpcostError) and "docs/how_to" in str(error)
        what = "refused" if refused else "WRONG"
        return f"{what} {record.operator_tuple} {type(error).__name__}: {error}"
    calls = partial(workload.run, 1), original
    drawn, usual = (min(repeat(call, number=1, repeat=50)) for call in calls)
    misleads = usual > LEAST_S and not 1 / FACTOR < drawn / usual < FACTOR
    ratio = f"{drawn / usual:.2f} of {usual * 1e6:.1f} us"
    return f"{'WRONG' if misleads else 'ok'} {ratio} {record.operator_tuple}"


def survey(operator):
    """Judge the calls of its samples in inference, and with a backward pass."""
    dtype = torch.float32 if operator.supports_dtype(torch.float32, "cpu") else torch.int64
    seen = Seen()
    for gradients in (False, True):
        with suppress(Exception):  # a sample may be none at these sizes, or have no gradient
            found = operator.sample_inputs("cpu", dtype, requires_grad=gradients)
            for sample in islice(found, SAMPLES):
                with torch.inference_mode(not gradients), seen:
                    result = operator(sample.input, *sample.args, **sample.kwargs)
                    if gradients:
                        parts = [each for each in tensors_in_tree(result) if each.requires_grad]
                        torch.autograd.backward(parts, [torch.ones_like(each) for each in parts])
    for record, original in seen.calls.values():
        with torch.inference_mode():
            print(judged(record, original), flush=True)


def main(pattern=".*"):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    parts = (each for each in vars(definitions).values() if isinstance(each, ModuleType))
    for module in (common_methods_invocations, core, *parts):
        vars(module).update({key: SIZES[key] for key in SIZES if key in vars(module)})
    for operator in common_methods_invocations.op_db:
        if re.fullmatch(pattern, operator.name):
            death = run_isolated(partial(survey, operator), LIMIT_S)
            if death:
                print(f"WRONG {operator.name} {': '.join(death)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
