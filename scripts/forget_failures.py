"""Delete the rows of failed measurements, so that the next run measures them again."""

from pathlib import Path

from opcost.errors import reported
from opcost.rows import records, schemas

if __name__ == "__main__":
    with reported():
        schemas = {
            "operators": schemas.OPERATOR,
            "again": schemas.OPERATOR,
            "models": schemas.MODEL,
            "models_again": schemas.MODEL,
        }
        for kind, schema in schemas.items():
            for path in sorted(Path("results").glob(f"*/{kind}/*.parquet")):
                rows = records.read(path, schema, ["status", "error"]).to_pylist()
                failures = [row for row in rows if row["status"] != "ok"]
                for row in failures:
                    print(f"forgetting {path}: {row['status']}: {row['error']}")
                if failures:
                    path.unlink()
