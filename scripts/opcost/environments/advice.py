"""Messages about a changed environment, with remedies."""

import itertools
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from opcost.environments.changes import OF_ONE_DEVICE, Change, changes_of
from opcost.errors import OpcostError
from opcost.results_folder import all_measurements
from opcost.text import counted


def refuse_changes(folder: Path, now: Mapping[str, Any], any_of_kind: bool = False) -> None:
    """Raise OpcostError if the target of a folder was measured in another environment."""
    found = changes_of(folder, now, any_of_kind)
    if found:
        raise OpcostError(advice(folder, found))


def advice(folder: Path, changes: Sequence[Change]) -> str:
    """The changes since the target of a folder was measured, and commands as remedies."""
    target, names = folder.name, {change.name for change in changes}
    lines = [
        f"target {target!r} was measured in another environment. Rows of two environments are "
        "never mixed, so nothing was measured.",
        *(f"  {change}" for change in changes),
        f"{folder} holds {_rows(folder)} of that environment. Choose one of these:",
        f"- Keep them under another name, and measure {target} again in this environment:",
        f"    opcost set-aside {target}",
        "  Run again. Then compare:",
        "    opcost diff results/database.parquet results/database.parquet "
        f"--target {aside_name(folder)}={target}",
        "- Keep them under this name: give the target another name in the configuration, and run",
        f"    snakemake --cores 1{' --forcerun extract' if 'torch_version' in names else ''}",
        "- Restore the previous environment.",
    ]
    if names <= OF_ONE_DEVICE:
        lines.append("- Measure on any such device: any_of_kind: true (measures all again).")
    return "\n".join([*lines, "For unattended runs: environment_changes: set_aside."])


def summary(folder: Path, changes: Sequence[Change]) -> str:
    """The changes and one remedy in a line."""
    return (
        f"environment changed since {_rows(folder)} ({'; '.join(map(str, changes))}): a run will "
        f"stop; to keep them and measure again: opcost set-aside {folder.name}"
    )


def aside_name(folder: Path) -> str:
    """The name of the target of a folder if it is set aside now."""
    day = f"{folder.name}_{date.today():%Y_%m_%d}"
    names = itertools.chain([day], (f"{day}_{number}" for number in itertools.count(2)))
    return next(name for name in names if not folder.with_name(name).exists())


def _rows(folder: Path) -> str:
    return counted(len(all_measurements(folder)), "measurement")
