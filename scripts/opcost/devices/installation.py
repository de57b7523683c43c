"""What is installed here, as far as files tell it: without importing torch, without a device."""

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def installed_torch() -> dict[str, str | None]:
    """Version columns of the torch that an import would get; none if there is none.

    By torch/version.py: the package's metadata leave out what CUDA it was built with.
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
    """The version of NVIDIA's driver that the kernel has loaded."""
    try:
        return Path("/sys/module/nvidia/version").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _assignment(statement: ast.stmt) -> tuple[str, Any] | None:
    match statement:
        case ast.Assign(targets=[ast.Name(name)], value=value):
            return name, ast.literal_eval(value)
        case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value):
            return name, ast.literal_eval(value)
    return None
