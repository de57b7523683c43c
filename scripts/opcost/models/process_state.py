"""Process-wide settings, most of them PyTorch's, that a model's code may change."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.backends import cuda, cudnn, mkldnn
from torch.utils import _python_dispatch as dispatch

from opcost.errors import OpcostError

_CUDNN: Any = cudnn
_ONEDNN: Any = mkldnn


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


class ProcessState:
    """A snapshot of the settings; in a measurement, those of its target."""

    def __init__(self) -> None:
        self._values = {name: setting.read() for name, setting in _settings().items()}

    def reset(self) -> None:
        """Restore changed settings."""
        for name, setting in _settings().items():  # writing one may change later ones
            if setting.write is not None and setting.read() != self._values[name]:
                setting.write(self._values[name])

    def restore(self, model: str) -> list[str]:
        """Restore the settings that the model's code changed; return a description of each.

        Raises OpcostError for a setting that determines the model's operators: restoring it would
        change the user's model.
        """
        changed = self._changed()
        self.reset()
        for name in changed.keys() & _DECIDE_CALLS.keys():
            raise OpcostError(
                f"model {model}: its code {changed[name]}, and does not restore it. "
                "Restore it before the factory or forward returns; `dtype` of the model "
                "config sets the dtype of parameters and inputs"
            )
        return list(changed.values())

    def _changed(self) -> dict[str, str]:
        found = {}
        for name, setting in _settings().items():
            before, now = self._values[name], setting.read()
            if now != before:  # functions are shown by name
                old, new = (getattr(each, "__qualname__", each) for each in (before, now))
                found[name] = f"changed {name} from {old} to {new}"
        return found


def _settings() -> dict[str, _Setting]:
    return {**_DECIDE_CALLS, **_DECIDE_COST}
