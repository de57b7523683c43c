"""Delete the rows of failed measurements, so that the next run measures them again."""

from opcost.errors import reported
from opcost.results_folder import MODELS, all_measurements, kind_of, target_folders
from opcost.rows import records, schemas

if __name__ == "__main__":
    with reported():
        for path in [path for folder in target_folders() for path in all_measurements(folder)]:
            schema = schemas.MODEL if kind_of(path) == MODELS else schemas.OPERATOR
            rows = records.read(path, schema, ["status", "error"]).to_pylist()
            failures = [row for row in rows if row["status"] != "ok"]
            for row in failures:
                print(f"forgetting {path}: {row['status']}: {row['error']}")
            if failures:
                path.unlink()
