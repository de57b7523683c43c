"""Set a target's measurements aside: keep them as a target of another name.

The folder's name is the target of its rows, so that a single, atomic rename is sufficient.
"""

from pathlib import Path

from opcost.devices.installation import installed_torch
from opcost.environments.advice import aside_name
from opcost.errors import OpcostError, closest
from opcost.results_folder import extractions, target_folder, target_folders
from opcost.tuples.model_tuples import read_model_tuples


def set_aside(target: str, results: Path) -> str:
    """Rename the folder of a target. Returns the new name.

    Deletes tuples that another PyTorch extracted, so that the next run extracts them again. Raises
    OpcostError if there is no such target.
    """
    targets = [folder.name for folder in target_folders(results)]
    if target not in targets:
        raise OpcostError(f"there is no target {target!r} in {results}. {closest(target, targets)}")
    folder = target_folder(target, results)
    name = aside_name(folder)
    for path in outdated_tuples(results):
        path.unlink()
    folder.rename(target_folder(name, results))
    return name


def outdated_tuples(results: Path) -> list[Path]:
    """The files of tuples that another PyTorch than the installed one extracted."""
    version = installed_torch().get("torch_version")
    return [
        path
        for path in extractions(results)
        if version is not None and _torch_of(path) not in (None, version)
    ]


def _torch_of(path: Path) -> str | None:
    try:
        return read_model_tuples(path).torch_version
    except OpcostError:  # the next run will report it
        return None
