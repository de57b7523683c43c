"""Delete the rows of failed measurements, so that the next run measures them again."""

from pathlib import Path

from opcost import records, schemas
from opcost.errors import reported

if __name__ == "__main__":
    with reported():
        schemas = {
            "operators": schemas.OPERATOR,
            "again": schemas.OPERATOR,
            "models": schemas.MODEL,
        }
        for kind, schema in schemas.items():
            for path in sorted(Path("results").glob(f"*/{kind}/*.parquet")):
                for row in records.read(path, schema).to_pylist():
                    if row["status"] != "ok":
                        print(f"forgetting {path}: {row['status']}: {row['error']}")
                        path.unlink()
