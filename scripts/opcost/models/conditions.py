"""The conditions under which models run, in extraction as in measurement, and the process-wide
settings, most of them PyTorch's, that a model's code may change.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.backends import cuda, cudnn, mkldnn
from torch.utils import _python_dispatch as dispatch

from opcost.errors import OpcostError
from opcost.models.definition import ModelDefinition
from opcost.models.operator_calls import OperatorCalls

_DYNAMO = "torch._dynamo"
"""The module that torch.compile imports, which takes seconds."""

_MASKS, _IS_TRACING = "transformers.masking_utils", "is_tracing"
_POSITIONS, _FIND_PACKED = "position_ids", "find_packed_sequence_indices"

_CUDNN: Any = cudnn
_ONEDNN: Any = mkldnn


@contextmanager
def conditions(trained: bool) -> Iterator[None]:
    """The conditions that extraction and every measurement of a model share.

    Compiled parts run operator by operator: those of TorchScript, and those of torch.compile if
    they exist already (`run_compiled_parts_eagerly`).
    """
    existed = _DYNAMO in sys.modules
    stance = torch.compiler.set_stance("force_eager") if existed else nullcontext()
    gradients = torch.enable_grad() if trained else inference_conditions()
    try:
        with gradients, stance, torch.jit.optimized_execution(False):
            yield
    finally:
        if not existed and _DYNAMO in sys.modules:
            torch.compiler.set_stance("default")


def run_compiled_parts_eagerly() -> None:
    """Run compiled parts eagerly in these `conditions`, if the model has been built in them."""
    if _DYNAMO in sys.modules:
        torch.compiler.set_stance("force_eager")


@contextmanager
def inference_conditions() -> Iterator[None]:
    """The conditions of inference, and of operators, which are below autograd.

    The fast path of multi-head attention is disabled, because it exists only on some devices: a
    model's operators would depend on the device.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def autocast(module: nn.Module, dtype: str | None) -> AbstractContextManager[None]:
    """The context in which a module's forward runs in lower precision; none without a dtype."""
    if dtype is None:
        return nullcontext()
    context: AbstractContextManager[None] = torch.autocast(
        _device_type(module), getattr(torch, dtype)
    )
    return context


def active_autocast(module: nn.Module) -> str | None:
    """The dtype of a torch.autocast around the caller that affects a module's forward."""
    device = _device_type(module)
    if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return None
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.")


def _device_type(module: nn.Module) -> str:
    devices = (parameter.device for parameter in module.parameters())
    return next(devices, torch.get_default_device()).type


class _OneSequence(OperatorCalls):
    """Answers that all positions belong to one sequence."""

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return True
        return super()._called(func, args, kwargs)


@contextmanager
def masks_as_executed(definition: ModelDefinition) -> Iterator[None]:
    """Let models of transformers on fake tensors build the masks that they build on real ones.

    transformers builds other masks while it is traced, and mistakes fake tensors for a trace.
    Positions are assumed to be of one sequence unless they are given; a mask that needs their
    values is then an error of fake tensors.
    """
    module = sys.modules.get(_MASKS)
    if module is None or not hasattr(module, _IS_TRACING) or not hasattr(module, _FIND_PACKED):
        yield
        return
    find_packed = getattr(module, _FIND_PACKED)

    def of_one_sequence(position_ids: torch.Tensor) -> Any:
        with _OneSequence():
            return find_packed(position_ids)

    are_given = _POSITIONS in (definition.arrangement or {}).get("dict", ())
    with (
        mock.patch.object(module, _IS_TRACING, return_value=False),
        nullcontext() if are_given else mock.patch.object(module, _FIND_PACKED, of_one_sequence),
    ):
        yield


@dataclass(frozen=True)
class _Setting:
    """How to read and write a setting; `write` is None if PyTorch cannot restore it."""

    read: Callable[[], Any]
    write: Callable[[Any], Any] | None


def _attribute(holder: Any, name: str) -> _Setting:
    return _Setting(
        _readable(lambda: getattr(holder, name)), lambda value: setattr(holder, name, value)
    )


def _readable(read: Callable[[], Any]) -> Callable[[], Any]:
    """Handle PyTorch's error on reading a precision by its old name after setting the new one."""

    def value() -> Any:
        try:
            return read()
        except RuntimeError:
            return "set by another name"

    return value


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "one that was deleted"


def _dispatch_modes() -> list[str]:
    return [type(mode).__name__ for mode in dispatch._get_current_dispatch_mode_stack()]


def _leave_dispatch_modes(outer: list[str]) -> None:
    for mode in reversed(dispatch._get_current_dispatch_mode_stack()[len(outer) :]):
        mode.__exit__(None, None, None)


_DECIDE_CALLS: Mapping[str, _Setting] = {
    "the default dtype": _Setting(torch.get_default_dtype, torch.set_default_dtype),
    "the default device": _Setting(
        torch.get_default_device, lambda _: torch.set_default_device(None)
    ),
    "autocast on the CPU": _Setting(
        lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on)
    ),
    "autocast on CUDA": _Setting(
        lambda: torch.is_autocast_enabled("cuda"), lambda on: torch.set_autocast_enabled("cuda", on)
    ),
    "the active TorchDispatchModes": _Setting(_dispatch_modes, _leave_dispatch_modes),
}
"""Settings that determine which operators a model executes."""

_DECIDE_COST: Mapping[str, _Setting] = {
    "the number of threads": _Setting(torch.get_num_threads, torch.set_num_threads),
    "the number of interop threads": _Setting(torch.get_num_interop_threads, None),
    "the processor's cores in use": _Setting(
        lambda: sorted(os.sched_getaffinity(0)), lambda cores: os.sched_setaffinity(0, cores)
    ),
    "its niceness": _Setting(lambda: os.getpriority(os.PRIO_PROCESS, 0), None),
    "gradient mode": _Setting(torch.is_grad_enabled, torch.set_grad_enabled),
    "deterministic algorithms": _Setting(
        torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode
    ),
    "flushing of subnormal numbers": _Setting(
        lambda: sys.float_info.min / 4 == 0.0, torch.set_flush_denormal
    ),
    "float32 matmul precision": _Setting(
        _readable(torch.get_float32_matmul_precision), torch.set_float32_matmul_precision
    ),
    "TF32 of CUDA matmul": _attribute(cuda.matmul, "allow_tf32"),
    "TF32 of cuDNN": _attribute(cudnn, "allow_tf32"),
    "float32 precision": _attribute(torch.backends, "fp32_precision"),
    "float32 precision of CUDA matmul": _attribute(cuda.matmul, "fp32_precision"),
    "float32 precision of cuDNN": _attribute(_CUDNN.conv, "fp32_precision"),
    "float32 precision of oneDNN matmul": _attribute(_ONEDNN.matmul, "fp32_precision"),
    "float32 precision of oneDNN": _attribute(_ONEDNN.conv, "fp32_precision"),
    "cuDNN": _attribute(cudnn, "enabled"),
    "cudnn.benchmark": _attribute(cudnn, "benchmark"),
    "cudnn.deterministic": _attribute(cudnn, "deterministic"),
    "oneDNN": _attribute(mkldnn, "enabled"),
    "flash attention": _Setting(cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
    "memory-efficient attention": _Setting(
        cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp
    ),
    "attention by matrix products": _Setting(cuda.math_sdp_enabled, cuda.enable_math_sdp),
    "attention of cuDNN": _Setting(cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
    "Python's trace function": _Setting(sys.gettrace, sys.settrace),
    "Python's profile function": _Setting(sys.getprofile, sys.setprofile),
    "PyTorch's profiler": _Setting(
        torch.autograd._profiler_enabled, lambda _: torch.autograd._disable_profiler()
    ),
    "the working directory": _Setting(_working_directory, os.chdir),
    "the umask": _Setting(_umask, os.umask),
}
"""Settings that affect the time of operators, or the location and permissions of files."""

_SETTINGS = {**_DECIDE_CALLS, **_DECIDE_COST}


class ProcessState:
    """A snapshot of the settings; in a measurement, those of its target."""

    def __init__(self) -> None:
        self._values = {name: setting.read() for name, setting in _SETTINGS.items()}

    def reset(self) -> None:
        """Restore changed settings."""
        for name, setting in _SETTINGS.items():  # writing one may change later ones
            if setting.write is not None and setting.read() != self._values[name]:
                setting.write(self._values[name])

    def restore(self, model: str) -> list[str]:
        """Restore the settings that the model's code changed; return a description of each.

        Raises OpcostError for a setting that determines the model's operators: restoring it would
        change the user's model.
        """
        changed = {}
        for name, setting in _SETTINGS.items():
            before, now = self._values[name], setting.read()
            if now != before:  # functions are shown by name
                old, new = (getattr(each, "__qualname__", each) for each in (before, now))
                changed[name] = f"changed {name} from {old} to {new}"
        self.reset()
        for name in changed.keys() & _DECIDE_CALLS.keys():
            raise OpcostError(
                f"model {model}: its code {changed[name]}, and does not restore it. "
                "Restore it before the factory or forward returns; `dtype` of the model "
                "config sets the dtype of parameters and inputs"
            )
        return list(changed.values())
