"""Extraction in a separate process, because a model config is a program and may do anything.

Imports only the standard library before the fork, to keep the supervising process small.
"""

import os
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from opcost.errors import OpcostError, install_extra
from opcost.memory import free_bytes
from opcost.models.definition import ModelDefinition
from opcost.models.user_code import reason
from opcost.study import ExtractionSettings
from opcost.tuples.model_tuples import ModelTuples, read_model_tuples, write_model_tuples
from opcost.tuples.shipped_calls import shipped_calls
from opcost.workers.isolation import run_isolated

_SHARE_OF_FREE_MEMORY = 0.9
_MAX_MESSAGE = 10_000
_SETTING = {"timeout": "extraction.timeout_s", "out_of_memory": "extraction.memory_gib"}


def extract_contained(
    definition: ModelDefinition,
    search_path: Path | None,
    settings: ExtractionSettings,
    finish: Callable[[ModelTuples], None],
) -> None:
    """Extract a model in a forked process, which calls `finish` with the result.

    Raises OpcostError like `extract_model_tuples`, and if the model's code exceeds its time or
    memory, ends or kills its process, or leaves other processes running. Fork before torch has run
    anything.
    """
    if find_spec("torch") is None:
        raise OpcostError(
            f"to find the operators of {definition.name}, opcost needs PyTorch: "
            f"{install_extra('measure')}. Without it, it knows those of torchvision's models for "
            "classification, on their official inputs"
        )
    if settings.memory_gib is None:
        memory_bytes = _SHARE_OF_FREE_MEMORY * free_bytes()
    else:
        memory_bytes = settings.memory_gib * 2**30
    reader, writer = os.pipe()
    with os.fdopen(reader) as messages, os.fdopen(writer, "w") as message:

        def work() -> None:
            from opcost.tuples.extraction import extract_model_tuples

            try:
                finish(extract_model_tuples(definition, search_path))
            except OpcostError as error:
                said = str(error)
            except Exception as error:
                # User code may have changed anything, including the standard library.
                last = traceback.extract_tb(error.__traceback__)[-1]
                said = (
                    f"model {definition.name}: extraction failed after its code had run: "
                    f"{type(error).__name__}: {reason(error)}, raised in {last.filename}:"
                    f"{last.lineno}. If its code does not change Python or the process (paths, "
                    "limits, open files, modules), this is a bug in opcost: please report it"
                )
            else:
                return
            message.write(said[:_MAX_MESSAGE])
            message.flush()

        death = run_isolated(work, settings.timeout_s, memory_bytes)
        message.close()
        if said := messages.read():
            raise OpcostError(said)
    if death is not None:
        status, how = death
        remedy = f", or raise {_SETTING[status]}" if status in _SETTING else ""
        raise OpcostError(
            f"model {definition.name}: extraction failed: {how}: repair its code{remedy}"
        )


def tuples_of(
    definition: ModelDefinition, search_path: Path | None, settings: ExtractionSettings
) -> ModelTuples:
    """A model's tuples: shipped ones, or extracted in a separate process. Raises like
    `extract_contained`.
    """
    if (shipped := shipped_calls(definition)) is not None:
        return shipped
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tuples.pkl")
        extract_contained(definition, search_path, settings, partial(write_model_tuples, path))
        return read_model_tuples(path)
