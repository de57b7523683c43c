"""Delete the files of what failed on a target, so that the next run tries it again."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from opcost.errors import reported
from opcost.results_folder import all_measurements, recordings, series_of, target_folders
from opcost.rows import records, schemas
from opcost.run_lock import RunLock
from opcost.tuples.model_tuples import read_model_tuples


def failures(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files of failed measurements and recordings on a target, with the reason."""
    for path in all_measurements(folder):
        schema = schemas.MEASUREMENTS[series_of(path).kind]
        for row in records.read(path, schema, ["status", "error"]).to_pylist():
            if row["status"] != "ok":
                yield path, f"{row['status']}: {row['error']}"
    for path in recordings(folder):
        reason = read_model_tuples(path).not_recorded
        if reason is not None:
            yield path, reason


if __name__ == "__main__":
    with reported(), closing(RunLock()) as lock:
        lock.hold("make retry")
        for folder in target_folders():
            for path, reason in list(failures(folder)):
                print(f"forgetting {path}: {reason}")
                path.unlink(missing_ok=True)
