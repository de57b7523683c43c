"""Files of rows that are damaged, foreign, or of another version."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from tests.faults import rows
from tests.faults.fault import BAD, POOR, Found, fault
from tests.faults.study import Study
from tests.faults.verdicts import file_and_remedy, held, message, refused


def damaged(number: str, what: str, find: Callable[[Study], Path], damage: Callable) -> None:
    """A fault: a file that is damaged before the tables are made."""

    def attempt(study: Study) -> Found:
        path = find(study)
        damage(path)
        if path.name != "database.parquet":
            (study.results / "database.parquet").unlink()
            return refused(study.snakemake(), file_and_remedy(path), "(?i)delete|upgrade")
        return refused(study.opcost("query", path), file_and_remedy(path))

    fault(number, what)(attempt)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def of_operators(study: Study) -> Path:
    return study.rows()[0]


def replace_by_another(path: Path) -> None:
    shutil.copy(sorted(path.parent.glob("*.parquet"))[1], path)


damaged("8.1", "operators/: a truncated file", of_operators, truncate)
damaged("8.2", "operators/: an empty file", of_operators, lambda path: path.write_bytes(b""))
damaged(
    "8.3",
    "operators/: a foreign Parquet file",
    of_operators,
    lambda path: rows.write(path, pa.table({"x": [1]})),
)
damaged("8.4", "operators/: another tuple's file", of_operators, replace_by_another)
damaged("9.1", "models/: a truncated file", lambda study: study.rows("models")[0], truncate)
damaged(
    "9.2", "operators_2/: a truncated file", lambda study: study.rows("operators_2")[0], truncate
)
damaged(
    "9.3", "database.parquet truncated", lambda study: study.results / "database.parquet", truncate
)


def cast(name: str, kind: pa.DataType) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        table = rows.table(path)
        position = table.schema.get_field_index(name)
        rows.write(path, table.set_column(position, name, table[name].cast(kind)))

    return damage


def rename(path: Path) -> None:
    table = rows.table(path)
    names = ["seconds" if name == "time_s" else name for name in table.column_names]
    rows.write(path, table.rename_columns(names).replace_schema_metadata(table.schema.metadata))


damaged("10.1", "`time_s` is a float32", of_operators, cast("time_s", pa.float32()))
damaged("10.2", "another time zone", of_operators, cast("measured_at", pa.timestamp("us", "CET")))
damaged("10.3", "a column is renamed", of_operators, rename)
damaged(
    "10.4",
    "schema version 999",
    of_operators,
    lambda path: rows.write(path, rows.table(path), schema_version="999"),
)


damaged("10.6", "no row", of_operators, lambda path: rows.write(path, rows.table(path).slice(0, 0)))


def double(path: Path) -> None:
    table = rows.table(path)
    rows.write(path, pa.concat_tables([table, table]))


damaged("11.1", "a row twice in a file", of_operators, double)


@fault("12.1", "1500 times a bit of a row file flipped", "refused, or equal values")
def flipped_bits(study: Study) -> Found:
    shutil.copytree(Path(__file__).parent.parent / "fuzz", study.root / "tests/fuzz")
    environment = {"PYTHONPATH": f"{study.root / 'scripts'}:{study.root}"}
    code = (
        "import sys; from tests.fuzz.bits import flip_row_file; "
        "print(flip_row_file(sys.argv[1], 1500, seed=0))"
    )
    outcome = study.python(code, study.rows()[0], environment=environment)
    if outcome.code != 0:
        return Found(POOR, f"the fuzzer failed: {message(outcome)}")
    report = json.loads(outcome.text.splitlines()[-1])
    if report["passed"]:
        return Found(BAD, f"changed values passed: {report}")
    return held(not report["tracebacks"], str(report), POOR)
