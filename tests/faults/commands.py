"""What people type at the command line, and databases that others made."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.faults import rows
from tests.faults.fault import BAD, GOOD, POOR, Found, fault
from tests.faults.study import Outcome, Study
from tests.faults.verdicts import all_of, file_and_remedy, held, message, refused

DATABASE = "results/database.parquet"
TINY = "tests/study/models/tiny_cnn.yaml"


def asked(
    number: str,
    what: str,
    *arguments: str,
    says: tuple[str, ...] = (),
    codes: tuple[int, ...] = (1, 2),
) -> None:
    """A fault: a command that cannot be done as it is asked; its exit status is one of `codes`."""

    def attempt(study: Study) -> Found:
        outcome = study.opcost(*arguments)
        found = refused(outcome, *says)
        return all_of(found, held(outcome.code in codes, f"exit {outcome.code}", POOR))

    fault(number, what)(attempt)


@fault("55.1", "SQL as an operator's name", "refused, or no row matches")
def sql_as_operator(study: Study) -> Found:
    outcome = study.opcost("query", DATABASE, "--operator", "x'; DROP TABLE operators; --")
    if outcome.code == 3:
        return held(not outcome.traceback, f"exit 3: {message(outcome)}")
    return refused(outcome, "DROP TABLE")


asked(
    "55.2", "SQL as a column", "query", DATABASE, "--columns", "time; DROP TABLE x", says=("DROP",)
)


@fault("55.3", "a quote in the name of the output", "written")
def quote_in_name(study: Study) -> Found:
    outputs = [study.root / name for name in ('it\'s "it".csv', "it's.sqlite")]
    codes = [study.opcost("export", DATABASE, output).code for output in outputs]
    return held(codes == [0, 0] and all(map(Path.exists, outputs)), f"exits {codes}", POOR)


@fault("55.4", "`query` whose reader leaves after a line", "ends without a traceback")
def reader_leaves(study: Study) -> Found:
    script = f'"$0" -m opcost query {DATABASE} --csv | head -1'
    import sys

    outcome = study.execute(["sh", "-c", script, sys.executable])
    return held(
        (not outcome.traceback and "tuple" in outcome.text) or "operator" in outcome.text,
        message(outcome),
        POOR,
    )


asked("55.5", "--limit -1", "query", DATABASE, "--limit", "-1", says=("-1",))
asked("55.6", "export to .xlsx", "export", DATABASE, "out.xlsx", says=("xlsx", r"\.csv"))
asked("55.7", "merge onto an input", "merge", DATABASE, "--output", DATABASE, says=("output",))
asked("55.8", "a database that is not there", "query", "gone.parquet", says=(r"gone\.parquet",))


def with_database(number: str, what: str, content: bytes | None) -> None:
    """A fault: a database that is none, or half of one if there is no content."""

    def attempt(study: Study) -> Found:
        path = study.root / "other.parquet"
        whole = (study.root / DATABASE).read_bytes()
        path.write_bytes(whole[: len(whole) // 2] if content is None else content)
        commands = (("query", path), ("explain", TINY, "-d", path), ("diff", path, DATABASE))
        return all_of(
            *(refused(study.opcost(*command), file_and_remedy(path)) for command in commands)
        )

    fault(number, what)(attempt)


def foreign() -> bytes:
    """A Parquet file of somebody else's."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1]}), sink)
    return sink.getvalue().to_pybytes()


with_database("55.9", "a foreign database", foreign())
with_database("55.10", "an empty database", b"")
with_database("55.11", "a truncated database", None)


@fault("55.12", "import of rubbish")
def import_of_rubbish(study: Study) -> Found:
    (study.root / "rubbish.csv").write_text("a,b\n1,2\n")
    source = ("--source", "https://example.org", "--output", "out.parquet")
    return refused(study.opcost("import", "rubbish.csv", *source), r"rubbish\.csv")


asked("56.1", "export to /proc", "export", DATABASE, "/proc/out.csv", says=("/proc",))


@fault("56.2", "export to a folder")
def export_to_folder(study: Study) -> Found:
    (study.root / "folder.csv").mkdir()
    return refused(study.opcost("export", DATABASE, "folder.csv"), r"folder\.csv")


@fault("56.3", "a standard output that is full", "an error, without a traceback")
def full_output(study: Study) -> Found:
    import sys

    script = f'"$0" -m opcost query {DATABASE} --csv > /dev/full'
    outcome = study.execute(["sh", "-c", script, sys.executable])
    if outcome.code == 0:
        return Found(BAD, "exit 0, though nothing could be written")
    return refused(outcome, "(?i)space|output")


def with_text(number: str, what: str, *command: str, **values: str) -> None:
    """A fault: a database with a text that is not what it should be."""

    def attempt(study: Study) -> Found:
        rows.change_one(study.root / DATABASE, **values)
        return refused(study.opcost(*command), r"database\.parquet")

    fault(number, what)(attempt)


with_text("56.4", "bad conditions_json", "diff", DATABASE, DATABASE, conditions_json="{")
with_text(
    "56.5",
    "bad canonical_json, asked by --shape",
    "query",
    DATABASE,
    "--shape",
    "4x16",
    canonical_json="{",
)
with_text(
    "56.6", "bad tuple_id, merged", "merge", "--output", "out.parquet", DATABASE, tuple_id="xyz"
)


def seconds_of(outcome: Outcome) -> float:
    """How long a command took; one that failed took for ever."""
    return outcome.seconds if outcome.code == 0 else float("inf")


PLAIN = """
import sys, time
import pyarrow as pa, pyarrow.csv as pa_csv, pyarrow.parquet as pq
began = time.monotonic()
names = [field.name for field in pq.read_schema(sys.argv[1]) if not pa.types.is_nested(field.type)]
table = pq.read_table(sys.argv[1], columns=names)
if len(sys.argv) > 2:
    pa_csv.write_csv(table, sys.argv[2])
"""


TUPLE = '{"arguments":{"self":{"dtype":"float32","shape":[%d]}},"operator":"aten.relu.default"}'


@fault("56.7", "query and CSV export of 100,000 rows", "seconds: a few times what pyarrow needs")
def many_rows(study: Study) -> Found:
    path = study.root / "large.parquet"
    table = rows.table(study.root / DATABASE)
    repeated = pa.concat_tables([table] * (100_000 // len(table))).combine_chunks()
    texts = [TUPLE % number for number in range(len(repeated))]
    ids = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]
    operators = ["aten.relu.default"] * len(texts)
    for name, values in zip(
        ("tuple_id", "canonical_json", "operator"), (ids, texts, operators), strict=True
    ):
        repeated = repeated.set_column(repeated.column_names.index(name), name, pa.array(values))
    rows.write(path, repeated)
    plain_s = seconds_of(study.python(PLAIN, path))
    written_s = seconds_of(study.python(PLAIN, path, study.root / "plain.csv"))
    query_s = seconds_of(study.opcost("query", path, "--sort", "time", "--limit", "10"))
    export_s = seconds_of(study.opcost("export", path, study.root / "out.csv"))
    text = (
        f"query {query_s:.1f} s (pyarrow {plain_s:.1f} s), "
        f"export {export_s:.1f} s (pyarrow {written_s:.1f} s)"
    )
    return Found(GOOD if query_s < 10 and export_s < 40 else POOR, text)
