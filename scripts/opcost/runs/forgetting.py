"""Delete measurements so that the next run makes them again."""

from collections.abc import Collection, Iterator
from pathlib import Path

from opcost.environments.advice import advice
from opcost.environments.present import changes_here
from opcost.errors import OpcostError, closest
from opcost.results_folder import (
    MANIFEST,
    OPERATORS,
    all_measurements,
    recordings,
    series_of,
    target_folder,
    target_folders,
)
from opcost.rows import records, schemas
from opcost.rows.flags import FLAGS
from opcost.study import Study
from opcost.tuples.manifest import read_manifest, to_benchmark
from opcost.tuples.model_tuples import read_model_tuples


def forget_failures() -> Iterator[tuple[Path, str]]:
    """Delete failed measurements and recordings of all targets; yields each with the reason."""
    for folder in target_folders():
        for path in all_measurements(folder):
            [status, error] = _row(path, "status", "error")
            if status != "ok":
                path.unlink(missing_ok=True)
                yield path, f"{status}: {error}"
        for path in recordings(folder):
            reason = read_model_tuples(path).not_recorded
            if reason is not None:
                path.unlink(missing_ok=True)
                yield path, reason


def forget_flagged(study: Study, flags: Collection[str]) -> Iterator[tuple[Path, str]]:
    """Delete the study's measurements with one of these flags; yields each with its flags.

    Only those that its next run makes again. Raises OpcostError for an unknown flag, or if the next
    run would refuse to measure on a target.
    """
    for name in flags:
        if name not in FLAGS:
            raise OpcostError(f"{name!r} is not a flag. {closest(name, FLAGS)}".rstrip())
    folders = [target_folder(target) for target in study.conditions]
    for target, folder in zip(study.conditions, folders, strict=True):
        if changes := changes_here(folder, study.conditions[target].target):
            raise OpcostError(advice(folder, changes))
    tuple_ids = set(to_benchmark(read_manifest(MANIFEST))) if MANIFEST.exists() else set()
    for folder in folders:
        for path in all_measurements(folder):
            names = tuple_ids if series_of(path).kind == OPERATORS else study.models
            if path.stem not in names:
                continue
            [found] = _row(path, "flags")
            if found := [flag for flag in found or () if flag in flags]:
                path.unlink(missing_ok=True)
                yield path, ", ".join(found)


def _row(path: Path, *names: str) -> list:
    [row] = records.read(path, schemas.MEASUREMENTS[series_of(path).kind], names).to_pylist()
    return [row[name] for name in names]
