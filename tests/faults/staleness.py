"""Databases that may be older than the rows."""

import os
import subprocess
import time

from tests.faults import rows
from tests.faults.fault import BAD, POOR, Found, fault
from tests.faults.study import Outcome, Study
from tests.faults.verdicts import held, message, refused


def remade(study: Study) -> Outcome:
    """Make all tables again."""
    for pattern in ("database*", "comparison*"):
        for path in study.results.glob(pattern):
            path.unlink()
    return study.snakemake()


def stale(study: Study) -> list[str]:
    """Tuples of whose first round the database does not have what their file has. A disturbed run
    is left out if there are others.
    """
    database = rows.read(study.results / "database.parquet")
    held = {
        row["tuple_id"]: dict(zip(row["run_round"], row["run_time_s"], strict=True))
        for row in database
    }
    files = {path.stem: rows.read(path)[0] for path in study.rows()}
    return [
        tuple_id
        for tuple_id, row in files.items()
        if held[tuple_id].get(1) != row["time_s"]
        and (1 in held[tuple_id] or "disturbed" not in row["flags"])
    ]


def up_to_date(study: Study, outcome: Outcome) -> Found:
    """Good if the run ended well and the database holds what the files hold."""
    if outcome.code != 0:
        return refused(outcome)
    old = stale(study)
    return held(not old, f"exit 0; {len(old)} rows of the database are not those of their files")


NEWEST = "the database holds what the files hold"


@fault(
    "29.1", "database written two days ahead, the clock corrected, a tuple measured again", NEWEST
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
    for path in other.glob("*.parquet"):
        status = path.stat()
        rows.change(path, **rows.slower(100))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    # The database is made after the other folder: the clocks say that nothing has changed since.

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
    content, status = torn.read_bytes(), torn.stat()
    moments = (status.st_atime_ns, status.st_mtime_ns)
    rows.change(new, **rows.slower(100))
    torn.write_bytes(content[: len(content) // 2])
    os.utime(torn, ns=moments)
    failed = study.snakemake()
    if failed.code == 0:
        return Found(BAD, "the torn file was accepted")
    torn.write_bytes(content)
    os.utime(torn, ns=moments)
    return up_to_date(study, study.snakemake())
