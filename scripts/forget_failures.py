"""Delete the rows of failed measurements, so that the next run measures them again."""

from contextlib import closing

from opcost.errors import reported
from opcost.results_folder import all_measurements, series_of, target_folders
from opcost.rows import records, schemas
from opcost.run_lock import RunLock

if __name__ == "__main__":
    with reported(), closing(RunLock()) as lock:
        lock.hold("make retry")
        for path in [path for folder in target_folders() for path in all_measurements(folder)]:
            kind = series_of(path).kind
            rows = records.read(path, schemas.MEASUREMENTS[kind], ["status", "error"]).to_pylist()
            failures = [row for row in rows if row["status"] != "ok"]
            for row in failures:
                print(f"forgetting {path}: {row['status']}: {row['error']}")
            if failures:
                path.unlink()
