"""The Python module amdsmi, a binding of AMD's library libamd_smi.so: its GPUs and answers."""

import contextlib
import importlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opcost.energy.meter import MeterUnavailable

_DRIVER = Path("/sys/bus/pci/drivers/amdgpu")
"""Contains an entry for each PCI device that AMD's driver runs."""

_NOT_READ = {0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF}
"""Values of unsupported fields in the C library; amdsmi turns only some of them into 'N/A'."""

_TRIES = 3
"""Attempts to query a busy GPU."""


def pci_addresses(driver: Path = _DRIVER) -> list[str]:
    """The PCI addresses of all AMD GPUs of this machine, in amdsmi's order.

    HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES are not applied: HIP may number GPUs in another
    order. Raises MeterUnavailable where AMD's `driver` runs a GPU that amdsmi does not show.
    """
    runs = any(driver.glob("*:*"))
    try:
        found = list(gpu_handles(amd_library()))
    except MeterUnavailable:
        if runs:
            raise
        return []
    if runs and not found:
        raise MeterUnavailable(
            f"amdsmi lists no GPU, but {driver} has one: see whether amd-smi lists it, and whether "
            "this user is in the groups render and video"
        )
    return found


def amd_library() -> Any:
    """The module amdsmi. Its output is suppressed: the error contains the reason."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module("amdsmi")
    except ModuleNotFoundError as error:
        if error.name != "amdsmi":
            raise MeterUnavailable(f"amdsmi cannot be imported: {error}") from error
        raise MeterUnavailable(
            "the power of AMD GPUs is read by amdsmi, which is not installed: pip install amdsmi, "
            "in the version of the installed ROCm"
        ) from error
    # It raises KeyError or OSError without libamd_smi.so, AttributeError with another version
    # (ml-energy/zeus, zeus/device/gpu/amd.py).
    except (ImportError, OSError, KeyError, AttributeError) as error:
        raise MeterUnavailable(
            f"amdsmi cannot load AMD's library libamd_smi.so ({type(error).__name__}: {error}): "
            "install ROCm's amd-smi-lib, and amdsmi in the same version"
        ) from error


def gpu_handles(smi: Any) -> dict[str, Any]:
    """PCI address -> handle of all GPUs, in amdsmi's order."""
    call(smi, "amdsmi_init")
    handles = call(smi, "amdsmi_get_processor_handles")
    return {call(smi, "amdsmi_get_gpu_device_bdf", handle): handle for handle in handles}


def call(smi: Any, function: str, *arguments: Any) -> Any:
    """The answer of a function of amdsmi. Raises MeterUnavailable with its reason."""
    asked = getattr(smi, function, None)
    if asked is None:
        raise MeterUnavailable(f"this version of amdsmi has no {function}: update it")
    for tries_left in reversed(range(_TRIES)):
        try:
            return asked(*arguments)
        except smi.AmdSmiException as error:
            if not isinstance(error, smi.AmdSmiRetryException) or not tries_left:
                reason = " ".join(str(error).split())
                raise MeterUnavailable(f"{function} failed: {reason}") from error
    raise AssertionError


def number(found: Mapping[str, Any], field: str) -> float:
    """A field of an answer. Raises MeterUnavailable for a string, such as 'N/A'."""
    value = found.get(field)
    if not isinstance(value, int | float) or value in _NOT_READ:
        raise MeterUnavailable(f"amdsmi gives {value!r} as {field}")
    return value
