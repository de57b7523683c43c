"""`opcost.run`: the command of that name, from a program or a notebook."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from opcost.costs.lookup import look_up, refuse_autocast, sizes_of
from opcost.costs.model_cost import ModelCost
from opcost.errors import OpcostError
from opcost.models.configs import load_model
from opcost.results_folder import DATABASE
from opcost.runs.live_module import save_model

_LAST_LINES = 20


def run_from_python(
    model: Any,
    inputs: Any,
    kwargs: Mapping[str, Any],
    name: str | None,
    folder: Any,
    options: Mapping[str, Any],
) -> ModelCost:
    """Run a model as `opcost.run` documents."""
    root = Path(folder).resolve()
    flags = [
        f"--{key.replace('_', '-')}={value}" for key, value in options.items() if value is not None
    ]
    if isinstance(model, str | os.PathLike):
        if kwargs:
            raise OpcostError(
                f"kwargs are keyword arguments of a module's forward; {model} is a name: write its "
                "inputs into a model config (docs/how_to/add_a_model.md)"
            )
        refuse_autocast(os.fspath(model))
        _run([os.fspath(model), *(f"--input={size}" for size in sizes_of(inputs)), *flags], root)
        return look_up(model, inputs, {}, root / DATABASE, None, None, None)
    label = name or re.sub(r"\W+", "_", type(model).__name__.lower())
    arguments = [inputs] if isinstance(inputs, Tensor) else inputs
    tuples, config = save_model(model, arguments, kwargs, label, root)
    _run([str(config), *flags], root)
    defined = replace(tuples, definition=load_model(label, root / config.parent))
    return look_up(defined, (), {}, root / DATABASE, None, None, None)


def _run(arguments: Sequence[str], root: Path) -> None:
    """Run `opcost run`, printing its output. Raises OpcostError with its last lines on failure."""
    root.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-m", "opcost", "run", *arguments]
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            print(line, end="")
            lines.append(line)
    if process.returncode not in (0, 3):
        raise OpcostError(f"the run failed:\n{''.join(lines[-_LAST_LINES:])}")
