"""The installed PyTorch and NVIDIA driver, without importing torch or opening a device."""

import ast
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from opcost.files import first_line

_UNTIL_THE_END = ExitStack()


def installed_torch() -> dict[str, str | None]:
    """Version columns of the installed torch; empty without one.

    Read from torch/version.py, because the package's metadata lack the CUDA version.
    """
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    try:
        tree = ast.parse((Path(spec.origin).parent / "version.py").read_text(encoding="utf-8"))
        stated = dict(filter(None, map(_assignment, tree.body)))
    except (OSError, ValueError, SyntaxError):
        return {}
    return {"torch_version": stated.get("__version__"), "cuda_version": stated.get("cuda")}


def loaded_driver() -> str | None:
    """The version of the NVIDIA driver in the kernel, or None."""
    return first_line(Path("/sys/module/nvidia/version")) or None


def keep_driver_loaded(devices: Path = Path("/dev")) -> int:
    """Open the device files of all GPUs until this process ends. Returns how many could be opened.

    Without persistence mode, the driver initialises a GPU for each process that opens it first,
    which takes up to seconds, and releases it after the last. Open device files keep it, as in
    NVIDIA's persistence daemon.
    """
    count = 0
    for path in devices.glob("nvidia[0-9]*"):
        with suppress(OSError):
            _UNTIL_THE_END.enter_context(path.open("rb", buffering=0))
            count += 1
    return count


def _assignment(statement: ast.stmt) -> tuple[str, Any] | None:
    match statement:
        case ast.Assign(targets=[ast.Name(name)], value=value):
            return name, ast.literal_eval(value)
        case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value):
            return name, ast.literal_eval(value)
    return None
