"""The present environment, as far as known without importing torch or opening a device."""

from pathlib import Path

from opcost.devices.installation import installed_torch
from opcost.devices.kinds import kind_of
from opcost.environments.changes import Change, changes_of
from opcost.environments.recorded import recorded_environment
from opcost.target import Target


def changes_here(
    folder: Path, settings: Target, *, torch: bool = True, machine: bool = True
) -> list[Change]:
    """The known changes since the target of a folder was measured.

    `torch`: jobs use the torch of this Python. `machine`: jobs run on this machine. Raises
    OpcostError for a damaged file.
    """
    kind = kind_of(recorded_environment(folder).get("device", settings.device))
    now = installed_torch() if torch else {}
    if kind is not None and kind.is_processor:
        now["cuda_version"] = None
    if kind is not None and machine:
        now |= kind.recorded()
    return changes_of(folder, now, settings.any_of_kind)
