"""Files, links and texts by which somebody else would have this user's opcost do harm."""

import fcntl
import hashlib
import json
import os
from pathlib import Path

from tests.faults import rows
from tests.faults.environment import measure_one
from tests.faults.fault import BAD, BY_HAND, POOR, Found, fault
from tests.faults.study import Study, wait_until
from tests.faults.verdicts import held, refused

UNTOUCHED = "refused; the victim's file is as it was"


@fault("45.1", "a tuple of aten.from_file that creates a file", "unsupported; no file is created")
def from_file(study: Study) -> Found:
    study.snakemake()  # the tables are of this copy's files
    trace = study.root / "created"
    arguments = {"filename": str(trace), "shared": True, "size": 1000}
    described = {"arguments": arguments, "operator": "aten.from_file.default"}
    text = json.dumps(described, sort_keys=True, separators=(",", ":"))
    tuple_id = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = study.manifest
    document = json.loads(path.read_text())
    entry = next(iter(document["tuples"].values())) | {
        "canonical_json": text,
        "outputs": [{"dtype": "float32", "shape": [1000]}],
        "parameters": [],
    }
    head, _, rest = path.read_text().partition("\n")
    path.write_text(f'{head}\n"{tuple_id}": {json.dumps(entry, sort_keys=True)},\n{rest}')
    output = str(study.target.relative_to(study.root) / f"operators/{tuple_id}.parquet")
    outcome = study.snakemake("--", output)
    if trace.exists():
        return Found(BAD, f"created a file of {trace.stat().st_size} bytes at the path it named")
    if outcome.code != 0:
        return refused(outcome, "from_file")
    status = rows.read(study.root / output)[0]["status"]
    return held(status == "unsupported", f"no file created; a row of status {status}", POOR)


def locks(study: Study) -> list[Path]:
    """The devices' locks that a job leaves."""
    measure_one(study)
    study.snakemake()
    found = [*study.temporary.rglob("*.lock")]
    return [path for path in found if "worker" not in str(path.parent.name)]


def victim(study: Study) -> Path:
    """A file that is nobody else's business."""
    path = study.root / "victim"
    path.write_text("the victim's words")
    path.chmod(0o600)
    return path


@fault("46.1", "the device's lock is a link to a victim's file", UNTOUCHED)
def linked_lock(study: Study) -> Found:
    hurt = victim(study)
    found = locks(study)
    for path in found:
        path.unlink()
        path.symlink_to(hurt)
    measure_one(study)
    outcome = study.snakemake()
    if not found or hurt.read_text() != "the victim's words":
        return Found(BAD, f"{len(found)} locks; the victim's file holds: {hurt.read_text()[:60]}")
    return refused(outcome, "lock")


@fault("47.1", "the lock is another user's, mode 0600", "refused, with the path")
def lock_of_another(study: Study) -> Found:
    if os.geteuid() != 0:
        return Found(BY_HAND, "needs two users: one makes the lock, mode 0600, the other measures")
    for path in locks(study):
        path.chmod(0o600)
    measure_one(study)
    study.give_to_nobody(study.root)
    study.temporary.chmod(0o1777)
    return refused(study.snakemake(nobody=True, environment={"HOME": str(study.root)}), "lock")


@fault("47.2", "the lock is a folder", "refused, with the path")
def lock_is_a_folder(study: Study) -> Found:
    for path in locks(study):
        path.unlink()
        path.mkdir()
    measure_one(study)
    return refused(study.snakemake(timeout_s=60), "lock")


@fault("47.3", "who holds the lock calls itself by escape sequences", "shown harmlessly")
def holder_with_escapes(study: Study) -> Found:
    [path] = locks(study)
    measure_one(study)
    log = study.root / "output"
    with path.open("r+") as lock, log.open("wb") as output:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write("process 1, \x1b[31mred\x1b]0;title\x07")
        lock.flush()
        with study.started(study.command(), stdout=output, stderr=output):
            wait_until(lambda: b"waiting" in log.read_bytes() or b"held by" in log.read_bytes(), 60)
    raw = b"\x1b[31m" in log.read_bytes() or b"\x07" in log.read_bytes()
    return held(not raw, "the terminal gets the escapes as they are, or not", POOR)
