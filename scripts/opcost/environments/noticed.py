"""A job's note to its run that a target's environment has changed.

Only jobs open the device and, on a cluster, run on its machine. The note is in the target's folder
and stays with its rows when they are set aside.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opcost.environments.advice import refuse_changes
from opcost.errors import OpcostError
from opcost.files import replacing
from opcost.results_folder import environment_note


def refuse_and_note_changes(
    folder: Path, now: Mapping[str, Any], any_of_kind: bool = False
) -> None:
    """Raise OpcostError, and write a note, if a target was measured in another environment."""
    try:
        refuse_changes(folder, now, any_of_kind)
    except OpcostError as error:
        with replacing(environment_note(folder)) as temporary:
            temporary.write_text(f"{error}\n", encoding="utf-8")
        raise


def is_noted(folder: Path, since_s: float) -> bool:
    """Whether a job has written a note since a time in seconds since 1970."""
    try:
        return environment_note(folder).stat().st_mtime >= since_s
    except OSError:
        return False
