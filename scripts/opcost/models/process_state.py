"""Settings of the whole process, most of them PyTorch's, which the code of a model may change."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.backends import cuda, cudnn, mkldnn

from opcost.errors import OpcostError

_CUDNN: Any = cudnn
_ONEDNN: Any = mkldnn


@dataclass(frozen=True)
class _Setting:
    """How to read a setting and how to set it; None where PyTorch cannot set it back."""

    read: Callable[[], Any]
    write: Callable[[Any], Any] | None


def _attribute(holder: Any, name: str) -> _Setting:
    return _Setting(
        _readable(lambda: getattr(holder, name)), lambda value: setattr(holder, name, value)
    )


def _readable(read: Callable[[], Any]) -> Callable[[], Any]:
    """PyTorch refuses to read a precision by its older name once it was set by its newer one."""

    def value() -> Any:
        try:
            return read()
        except RuntimeError:
            return "set by another name"

    return value


def _flushes_subnormals() -> bool:
    return sys.float_info.min / 4 == 0.0


def _use_deterministic(mode: int) -> None:
    torch.set_deterministic_debug_mode(mode)


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
}
"""Which operators a model executes depends on these."""

_DECIDE_COST: Mapping[str, _Setting] = {
    "the number of threads": _Setting(torch.get_num_threads, torch.set_num_threads),
    "the number of interop threads": _Setting(torch.get_num_interop_threads, None),
    "the processor's cores in use": _Setting(
        lambda: sorted(os.sched_getaffinity(0)), lambda cores: os.sched_setaffinity(0, cores)
    ),
    "its niceness": _Setting(lambda: os.getpriority(os.PRIO_PROCESS, 0), None),
    "gradient mode": _Setting(torch.is_grad_enabled, torch.set_grad_enabled),
    "deterministic algorithms": _Setting(torch.get_deterministic_debug_mode, _use_deterministic),
    "flushing of subnormal numbers": _Setting(_flushes_subnormals, torch.set_flush_denormal),
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
}
"""How long these operators take depends on these."""


class ProcessState:
    """What the settings are when this is made: for a measurement, what its target asks for."""

    def __init__(self) -> None:
        self._values = {name: setting.read() for name, setting in _settings().items()}

    def reset(self) -> None:
        """Set back what differs."""
        for name, setting in _settings().items():  # to set one may change those after it
            if setting.write is not None and setting.read() != self._values[name]:
                setting.write(self._values[name])

    def restore(self, model: str) -> list[str]:
        """Set back what the model's code has changed; answers what, in words.

        Raises OpcostError for a setting that decides which operators the model executes: set back,
        it would be another model than the user's.
        """
        changed = self._changed()
        self.reset()
        for name in changed.keys() & _DECIDE_CALLS.keys():
            raise OpcostError(
                f"model {model}: its code {changed[name]}, and leaves it so for all code of the "
                "process. Set it back before the factory or forward returns; `dtype` of the model "
                "config is the type of parameters and inputs"
            )
        return list(changed.values())

    def _changed(self) -> dict[str, str]:
        found = {}
        for name, setting in _settings().items():
            before, now = self._values[name], setting.read()
            if now != before:
                found[name] = f"changed {name} from {before} to {now}"
        return found


def _settings() -> dict[str, _Setting]:
    return {**_DECIDE_CALLS, **_DECIDE_COST}
