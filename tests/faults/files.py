"""Files that are damaged, foreign, of another version, or older than they seem."""

import json
import os
import pickle
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from faults import rows
from faults.fault import BAD, GOOD, POOR, Found, fault
from faults.study import Outcome, Study
from faults.values import remade
from faults.verdicts import all_of, file_and_remedy, held, message, refused

ROOT = os.geteuid() == 0


def mounted(study: Study, options: str, *commands: str) -> Outcome:
    """Run shell commands in a mount namespace of their own, results/ mounted with options."""
    script = f"set -e\nmount -t tmpfs -o {options} none results\n" + "\n".join(commands)
    return study.execute(["unshare", "-m", "sh", "-c", script])


@fault("6.1", "results/ is full", "a message with the path; rows are kept; with space it resumes")
def full_disk(study: Study) -> Found:
    if not ROOT:
        return Found("by hand", "only root may mount a small file system")
    run = " ".join(f"'{word}'" for word in study.command())
    outcome = mounted(
        study,
        "size=16m",
        "rm -f results/report.html",
        # Room for some rows, and no more.
        "head -c 16600000 /dev/zero > results/filler || true",
        f"{run} || echo FIRST-FAILED",
        "ls results/local/operators 2>/dev/null | grep -c parquet || true",
        "rm results/filler",
        f"{run} && echo RESUMED",
    )
    first, _, _ = outcome.text.partition("FIRST-FAILED")
    if "FIRST-FAILED" not in outcome.text or "RESUMED" not in outcome.text:
        return Found(BAD, f"did not fail and resume: {message(outcome)}")
    return refused(Outcome(1, first, outcome.seconds), "(?i)no space|full", "results")


@fault("7.1", "results/ is read-only", "refused before anything is measured")
def read_only_results(study: Study) -> Found:
    if not ROOT:
        return Found("by hand", "only root may mount a file system")
    study.rows()[0].unlink()
    run = " ".join(f"'{word}'" for word in study.command())
    script = f"mount --bind results results && mount -o remount,ro,bind results && {run}"
    outcome = study.execute(["unshare", "-m", "sh", "-c", script])
    return refused(outcome, "(?i)read-only|write-protected|permission")


@fault("7.2", "results/ belongs to another user", "refused before anything is measured")
def results_of_another(study: Study) -> Found:
    if not ROOT:
        return Found("by hand", "needs two users: results/ of one, the run of the other")
    study.rows()[0].unlink()
    study.give_to_nobody(study.root, study.temporary)
    subprocess.run(["chown", "-R", "0:0", study.results], check=True)
    outcome = study.snakemake(nobody=True)
    return refused(outcome, "(?i)read-only|write-protected|permission")


def damaged(number: str, what: str, find: Callable[[Study], Path], damage: Callable) -> None:
    """A fault: a file that is damaged before the tables are made."""

    def attempt(study: Study) -> Found:
        path = find(study)
        damage(path)
        if path.name != "database.parquet":
            (study.results / "database.parquet").unlink()
            return refused(study.snakemake(), file_and_remedy(path), "(?i)delete")
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
damaged("9.2", "again/: a truncated file", lambda study: study.rows("again")[0], truncate)
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


@fault("10.5", "a database of schema version 6", "read, or refused with what to do")
def older_database(study: Study) -> Found:
    path = study.results / "database.parquet"
    rows.write(path, rows.table(path), schema_version="6")
    outcome = study.opcost("explain", "tests/study/models/tiny_cnn.yaml", "-d", path)
    if outcome.code in (0, 3):
        return held("linear" in outcome.text, f"read, exit {outcome.code}")
    return refused(outcome, file_and_remedy(path))


damaged("10.6", "no row", of_operators, lambda path: rows.write(path, rows.table(path).slice(0, 0)))


def double(path: Path) -> None:
    table = rows.table(path)
    rows.write(path, pa.concat_tables([table, table]))


damaged("11.1", "a row twice in a file", of_operators, double)


@fault("12.1", "1500 times a bit of a row file flipped", "refused, or equal values")
def flipped_bits(study: Study) -> Found:
    here = Path(__file__).parent.parent
    environment = {"PYTHONPATH": f"{study.root / 'scripts'}:{here}"}
    code = (
        "import sys; from fuzz.bits import flip_row_file; "
        "print(flip_row_file(sys.argv[1], 1500, seed=0))"
    )
    outcome = study.python(code, study.rows()[0], environment=environment)
    if outcome.code != 0:
        return Found(POOR, f"the fuzzer failed: {message(outcome)}")
    report = json.loads(outcome.text.splitlines()[-1])
    if report["passed"]:
        return Found(BAD, f"changed values passed: {report}")
    return held(not report["tracebacks"], str(report), POOR)


def json_file(
    number: str, what: str, name: str, change: Callable[[Any], Any] | str, *says: str,
    accepted: str = BAD, job: bool = True,
) -> None:  # fmt: skip
    """A fault: a JSON file beside the rows, changed by a function or replaced by a text."""

    def attempt(study: Study) -> Found:
        path = study.results / name
        if callable(change):
            document = json.loads(path.read_text())
            path.write_text(json.dumps(change(document) or document))
        else:
            path.write_text(change)
        if job:
            study.rows()[0].unlink()
        return refused(remade(study), file_and_remedy(path), *says, accepted=accepted)

    fault(number, what)(attempt)


DEVICE, SENSOR = "local/device.json", "local/sensor.json"
AGAIN, MANIFEST = "local/overhead_again.json", "operator_tuples.json"


def setting(name: str, value: Any) -> Callable[[dict], dict]:
    return lambda document: document | {name: value}


def without(name: str) -> Callable[[dict], dict]:
    return lambda document: {key: value for key, value in document.items() if key != name}


def first_call(value: Any) -> Callable[[dict], dict]:
    """The overhead of a call, as the first of the processes found it."""

    def change(document: dict) -> dict:
        samples = document["overhead"]
        return document | {"overhead": [[value, *samples[0][1:]], *samples[1:]]}

    return change


NAN, NUMBER = float("nan"), "(?i)nan"
json_file("23.1", "device.json is no JSON", DEVICE, "{")
# An opcost that did not know devices of a kind wrote none.
json_file(
    "23.2", "device.json without lock_key", DEVICE, without("lock_key"), "lock_key", accepted=GOOD
)
json_file("23.3", 'device.json: overhead is "x"', DEVICE, setting("overhead", "x"), "overhead")
json_file("23.4", "device.json: overhead is NaN", DEVICE, first_call(NAN), NUMBER)
json_file(
    "24.1", "device.json: quiet_s is NaN", DEVICE, setting("quiet_s", NAN), "quiet_s", accepted=POOR
)
json_file(
    "24.2", "device.json: quiet_s is -1", DEVICE, setting("quiet_s", -1), "quiet_s", accepted=POOR
)
json_file(
    "25.1",
    "device.json of another processor",
    DEVICE,
    setting("device_name", "Other CPU"),
    "Other CPU",
)
json_file("26.1", "device.json: a call costs -5 s", DEVICE, first_call(-5.0), "-5", job=False)
json_file(
    "26.2", "overhead_again.json: a call costs -1 s", AGAIN, first_call(-1.0), "-1", job=False
)


@fault("26.3", "overhead_again.json of another device")
def overhead_of_another_device(study: Study) -> Found:
    path = study.target / "overhead_again.json"
    document = json.loads(path.read_text())
    known = [key for key in document if key != "overhead"]
    other = {
        key: f"other {key}" if isinstance(document[key], str) else document[key] for key in known
    }
    path.write_text(json.dumps(document | other))
    outcome = remade(study)
    if outcome.code == 0 and not known:
        return Found(BAD, "accepted: the file does not even say of which device it is")
    return refused(outcome, file_and_remedy(path))


json_file("27.1", "overhead_again.json is no JSON", AGAIN, "{", job=False)
json_file("27.2", "overhead_again.json is a list", AGAIN, "[]", job=False)
json_file("27.3", "sensor.json is no JSON", SENSOR, "{")
json_file("27.4", "operator_tuples.json is no JSON", MANIFEST, "{")
json_file("28.1", "overhead_again.json: NaN", AGAIN, first_call(NAN), NUMBER, job=False)
json_file("28.2", 'overhead_again.json: "a"', AGAIN, first_call("a"), job=False)
json_file("28.3", "sensor.json without content", SENSOR, '{"schema_version": 1}', accepted=POOR)


@fault("28.4", "operators/: a row of the target `other`")
def row_of_another_target(study: Study) -> Found:
    path = study.rows()[0]
    rows.change(path, target="other")
    return refused(remade(study), file_and_remedy(path), "other", accepted=POOR)


def stale(study: Study) -> list[str]:
    """Tuples whose time in the database is not that of their file."""
    times = {
        row["tuple_id"]: row["time_s"] for row in rows.read(study.results / "database.parquet")
    }
    return [path.stem for path in study.rows() if rows.read(path)[0]["time_s"] != times[path.stem]]


def up_to_date(study: Study, outcome: Outcome) -> Found:
    """Good if the run ended well and the database holds what the files hold."""
    if outcome.code != 0:
        return refused(outcome)
    old = stale(study)
    return held(not old, f"exit 0; {len(old)} rows of the database are not those of their files")


NEWEST = "the database holds what the files hold"


@fault(
    "29.1", "database written two days ahead, the clock corrected, a tuple measured anew", NEWEST
)
def wrong_clock(study: Study) -> Found:
    # As a clock that was ahead leaves it: the moment that a database states, and its file's time.
    path = study.results / "database.parquet"
    table, ahead_ns = rows.table(path), 2 * 24 * 3600 * 10**9
    stated = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    moments = {
        key.removeprefix("opcost."): str(int(value) + ahead_ns)
        for key, value in stated.items()
        if value.isdigit() and len(value) == 19
    }
    if moments:
        rows.write(path, table, **moments)
    moment = path.stat().st_mtime_ns + ahead_ns
    os.utime(path, ns=(moment, moment))
    study.rows()[0].unlink()
    return up_to_date(study, study.snakemake())


@fault("30.1", "operators/ replaced by `mv` of another folder", NEWEST)
def moved_folder(study: Study) -> Found:
    folder = study.target / "operators"
    other = study.target / "operators_other"
    subprocess.run(["cp", "-a", folder, other], check=True)
    slower = dict.fromkeys(
        ("time_s", "time_ci_low_s", "time_ci_high_s"), lambda value: value and 100 * value
    )
    for path in other.glob("*.parquet"):
        status = path.stat()
        rows.change(path, **slower)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    # The database is made after the other folder: the clocks say that nothing has changed since.
    import time

    time.sleep(2.5)
    first = remade(study)
    if first.code != 0:
        return Found(POOR, f"the tables could not be made: {message(first)}")
    folder.rename(study.target / "operators_old")
    other.rename(folder)
    return up_to_date(study, study.snakemake("--forcerun", "database"))


@fault("62.1", "a new row, another one torn: the run fails; mended, the same command", NEWEST)
def restored_database(study: Study) -> Found:
    new, torn = study.rows()[:2]
    content = torn.read_bytes()
    rows.change(
        new, time_s=lambda value: 100 * value, time_ci_low_s=lambda value: value and 100 * value,
        time_ci_high_s=lambda value: value and 100 * value,
    )  # fmt: skip
    truncate(torn)
    failed = study.snakemake()
    if failed.code == 0:
        return Found(BAD, "the torn file was accepted")
    torn.write_bytes(content)
    return up_to_date(study, study.snakemake())


def pickled(study: Study, change: Callable[[dict], None]) -> tuple[Path, Outcome]:
    """Change what a model's extraction holds, and make the tables."""
    path = study.results / "tuples" / "tiny_cnn.pkl"
    document = pickle.loads(path.read_bytes())
    change(document)
    path.write_bytes(pickle.dumps(document, protocol=4))
    return path, remade(study)


class Shell:
    """What a pickle would run."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple:
        return os.system, (self.command,)


@fault("51.1", "a pickle that runs os.system", "refused, and not run")
def pickle_that_runs(study: Study) -> Found:
    path, trace = study.results / "tuples" / "tiny_cnn.pkl", study.root / "ran"
    path.write_bytes(pickle.dumps(Shell(f"touch {trace}")))
    found = refused(study.snakemake(), file_and_remedy(path))
    return all_of(found, held(not trace.exists(), "the command of the pickle was run, or was not"))


@fault("51.2", "a pickle that claims a terabyte")
def pickle_of_a_terabyte(study: Study) -> Found:
    path = study.results / "tuples" / "tiny_cnn.pkl"
    path.write_bytes(b"\x80\x04\x8e" + (10**12).to_bytes(8, "little") + b"abc")
    return refused(study.snakemake(timeout_s=60, limited=True), file_and_remedy(path))


@fault("52.1", "a pickle with calls -1 and 99, FLOPs -5 and NaN")
def pickle_of_wrong_values(study: Study) -> Found:
    found = []
    for change in (
        lambda document: document["calls"][0].__setitem__(0, -1),
        lambda document: document["calls"][0].__setitem__(0, 99),
        lambda document: document["tuples"][0].update(flops=-5),
        lambda document: document["tuples"][0].update(flops=float("nan")),
    ):
        content = (study.results / "tuples" / "tiny_cnn.pkl").read_bytes()
        path, outcome = pickled(study, change)
        found.append(refused(outcome, file_and_remedy(path)))
        path.write_bytes(content)
    return all_of(*found)


@fault("52.2", "a pickle of another model")
def pickle_of_another_model(study: Study) -> Found:
    path = study.results / "tuples" / "tiny_cnn.pkl"
    shutil.copy(path.with_name("tiny_mlp.pkl"), path)
    return refused(remade(study), "tiny_cnn", "tiny_mlp", "(?i)delete")
