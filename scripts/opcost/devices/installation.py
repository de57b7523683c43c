"""Installed versions, read from files without importing torch or opening a device."""

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from opcost.files import first_line


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


def _assignment(statement: ast.stmt) -> tuple[str, Any] | None:
    match statement:
        case ast.Assign(targets=[ast.Name(name)], value=value):
            return name, ast.literal_eval(value)
        case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value):
            return name, ast.literal_eval(value)
    return None
