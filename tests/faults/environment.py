"""Users, folders, terminals and mounts that are not what they usually are."""

import os
import subprocess

from tests.faults.fault import BAD, BY_HAND, Found, fault
from tests.faults.study import Outcome, Study, may_mount
from tests.faults.verdicts import all_of, message, refused, works

SAME_AS_EVER = "works as ever"


def measure_one(study: Study) -> None:
    """Have the next run measure something."""
    study.rows()[0].unlink()


def measure_warm(study: Study) -> None:
    """The same by a warm worker."""
    measure_one(study)
    study.configure(workers="warm")


@fault("49.1", "another user than root, umask 077", SAME_AS_EVER)
def not_root(study: Study) -> Found:
    if os.geteuid() != 0:
        return Found(BY_HAND, "only root may become another user")
    measure_warm(study)
    study.give_to_nobody(study.root.parent)
    return works(study.snakemake(nobody=True, umask=0o77))


@fault("49.2", "TMPDIR names no folder", "works, or refused with TMPDIR")
def no_temporary_folder(study: Study) -> Found:
    measure_warm(study)
    outcome = study.snakemake(environment={"TMPDIR": str(study.root / "gone")})
    return works(outcome) if outcome.code == 0 else refused(outcome, "TMPDIR")


@fault("49.3", "a path of umlauts, blanks, quotes and dollars", SAME_AS_EVER)
def odd_path(study: Study) -> Found:
    measure_warm(study)
    odd = study.root.parent / "\u00fc n'i $c"
    study.root.rename(odd)
    return works(
        study.execute(study.command(), folder=odd, environment={"PYTHONPATH": str(odd / "scripts")})
    )


@fault("49.4", "results/ is a link to another folder", SAME_AS_EVER)
def linked_results(study: Study) -> Found:
    measure_one(study)
    elsewhere = study.root.parent / "elsewhere"
    study.results.rename(elsewhere)
    study.results.symlink_to(elsewhere)
    return works(study.snakemake())


@fault("50.1", "no /proc", "works, or refused with /proc")
def no_proc(study: Study) -> Found:
    if not may_mount():
        return Found(BY_HAND, "only root may unmount /proc: `unshare -m`, `umount -l /proc`")
    measure_warm(study)
    script = 'umount -l /proc; exec "$@"'
    outcome = study.execute(["unshare", "-m", "sh", "-c", script, "sh", *study.command()])
    return works(outcome) if outcome.code == 0 else refused(outcome, "/proc")


@fault("50.2", "a home that cannot be written", "works, or refused with HOME")
def unwritable_home(study: Study) -> Found:
    measure_warm(study)
    (study.root.parent / "home").write_text("a file")
    outcome = study.snakemake(environment={"HOME": str(study.root.parent / "home")})
    return works(outcome) if outcome.code == 0 else refused(outcome, "HOME")


TINY = ("tests/study/models/tiny_cnn.yaml", "-d", "results/database.parquet")
ASCII = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}


@fault("50.3", "a terminal that can print ASCII alone", SAME_AS_EVER)
def ascii_terminal(study: Study) -> Found:
    measure_one(study)
    return all_of(
        works(study.snakemake(environment=ASCII)),
        works(study.opcost("explain", *TINY, environment=ASCII)),
        works(study.opcost("query", environment=ASCII)),
    )


ROOT = os.geteuid() == 0


def mounted(study: Study, options: str, *commands: str) -> Outcome:
    """Run shell commands in a mount namespace of their own, results/ mounted with options."""
    script = f"set -e\nmount -t tmpfs -o {options} none results\n" + "\n".join(commands)
    return study.execute(["unshare", "-m", "sh", "-c", script], timeout_s=600)


@fault("6.1", "results/ is full", "a message with the path; rows are kept; with space it resumes")
def full_disk(study: Study) -> Found:
    if not may_mount():
        return Found(BY_HAND, "only root may mount a small file system")
    run = " ".join(f"'{word}'" for word in study.command())
    outcome = mounted(
        study,
        "size=16m",
        "rm -f results/report.html",
        # Room for some rows, and no more.
        "head -c 16600000 /dev/zero > results/filler || true",
        f"{run} || echo FIRST-FAILED",
        "ls results/local/*/operators 2>/dev/null | grep -c parquet || true",
        "rm results/filler",
        f"{run} && echo RESUMED",
    )
    first, _, _ = outcome.text.partition("FIRST-FAILED")
    if "FIRST-FAILED" not in outcome.text or "RESUMED" not in outcome.text:
        return Found(BAD, f"did not fail and resume: {message(outcome)}")
    return refused(Outcome(1, first, outcome.seconds), "(?i)no space|full", "results")


@fault("7.1", "results/ is read-only", "refused before anything is measured")
def read_only_results(study: Study) -> Found:
    if not may_mount():
        return Found(BY_HAND, "only root may mount a file system")
    study.rows()[0].unlink()
    run = " ".join(f"'{word}'" for word in study.command())
    script = f"mount --bind results results && mount -o remount,ro,bind results && {run}"
    outcome = study.execute(["unshare", "-m", "sh", "-c", script])
    return refused(outcome, "(?i)read-only|write-protected|permission")


@fault("7.2", "results/ belongs to another user", "refused before anything is measured")
def results_of_another(study: Study) -> Found:
    if not ROOT:
        return Found(BY_HAND, "needs two users: results/ of one, the run of the other")
    study.rows()[0].unlink()
    study.give_to_nobody(study.root, study.temporary)
    subprocess.run(["chown", "-R", "0:0", study.results], check=True)
    outcome = study.snakemake(nobody=True)
    return refused(outcome, "(?i)read-only|write-protected|permission")
