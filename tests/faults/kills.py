"""Kills, interrupts, two runs at once: what was measured is kept, the same command resumes."""

import os
import re
import signal
import time
from pathlib import Path

from tests.faults.fault import BAD, POOR, Found, fault
from tests.faults.study import Outcome, Study, wait_until
from tests.faults.verdicts import all_of, held, message, works

RESUMES = "rows are kept, the same command measures the others"
TEMPORARY = "**/.*.tmp"


def begin_again(study: Study) -> None:
    """Throw the rows away, so that a run has something to measure, for a second each."""
    for kind in ("operators", "operators_2", "models", "models_2", "rounds"):
        for path in study.rows(kind):
            path.unlink()
    study.measure_with(warm_up_s=0.5)
    study.configure(workers="warm")


def contents(study: Study) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in study.rows()}


def resumed(study: Study, before: dict[str, bytes]) -> Found:
    """Whether the same command measures what is missing, and only that."""
    outcome = study.snakemake()
    if outcome.code != 0:
        return Found(POOR, f"does not resume: {message(outcome)}")
    after = contents(study)
    lost = [name for name, content in before.items() if after.get(name) != content]
    return held(
        not lost and len(after) == 6,
        f"{len(before)} rows before, {len(lost)} of them lost, {len(after)} after, exit 0",
    )


def interrupted(study: Study, *signals: tuple[int, bool]) -> Found:
    """Send signals, each to the whole group or to Snakemake alone, after two measurements."""
    begin_again(study)
    with study.started(study.command()) as run:
        wait_until(lambda: len(study.rows()) >= 2)
        time.sleep(0.2)  # until Snakemake knows of it, too
        before = contents(study)
        for number, whole_group in signals:
            (os.killpg if whole_group else os.kill)(run.pid, number)
            time.sleep(0.3)
        run.communicate(timeout=90)
    return resumed(study, before)


SIGNALS = (
    ("1.1", "kill -9 Snakemake", (signal.SIGKILL, False)),
    ("1.2", "kill -9 Snakemake's group", (signal.SIGKILL, True)),
    ("2.1", "Ctrl-C", (signal.SIGINT, True)),
    ("2.2", "SIGINT to Snakemake alone", (signal.SIGINT, False)),
    ("2.3", "Ctrl-C twice", (signal.SIGINT, True), (signal.SIGINT, True)),
    ("2.4", "SIGTERM", (signal.SIGTERM, False)),
    ("2.5", "SIGHUP", (signal.SIGHUP, False)),
)
for number, what, *signals in SIGNALS:

    def _attempt(study: Study, signals: tuple = tuple(signals)) -> Found:
        return interrupted(study, *signals)

    fault(number, what, RESUMES)(_attempt)


def processes(run: int) -> dict[int, int]:
    """The processes of a run that belong to its server of workers, with their parents."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            if b"opcost.workers.server" in command and command.endswith(f"\0{run}\0".encode()):
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    found[int(path.name)] = int(parent)
        except OSError:
            continue
    return found


def killed(study: Study, generation: int) -> Found:
    """Kill the server of workers (0), a job (1), or a measurement (2) that it forked."""
    begin_again(study)

    def chain() -> list[int]:
        parents = processes(run.pid)
        for measurement, job in parents.items():
            if parents.get(job) in parents:
                return [parents[job], job, measurement]
        return []

    with study.started(study.command()) as run:
        wait_until(lambda: study.rows())
        os.kill(wait_until(chain)[generation], signal.SIGKILL)
        output, _ = run.communicate(timeout=120)
    outcome = Outcome(run.returncode, output.decode(errors="replace"), 0)
    if generation == 2:
        return held("SIGKILL" in outcome.text, f"exit {outcome.code}: a row says SIGKILL")
    # A job whose server dies does its work itself.
    text = outcome.code == 0 or "killed by SIGKILL" in outcome.text
    named = held(text, f"exit {outcome.code}, does not name the signal", POOR)
    return all_of(resumed(study, contents(study)), named)


fault("3.1", "kill -9 a measurement", "a row with status crashed")(lambda study: killed(study, 2))
fault("3.2", "kill -9 a job", "named, and repeated by the next run")(lambda study: killed(study, 1))
fault("3.3", "kill -9 the server", "its jobs do without, the others have another")(
    lambda study: killed(study, 0)
)


@fault("4.1", "kill -9 the group while tables are made, six times", "no torn file, and it resumes")
def kills_while_tables_are_made(study: Study) -> Found:
    for moment in range(6):
        (study.results / "database.parquet").unlink(missing_ok=True)
        with study.started(study.command()) as run:
            time.sleep(0.8 + 0.4 * moment)
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
    outcome = study.snakemake()
    left = [path.name for path in study.results.glob(TEMPORARY)]
    return all_of(works(outcome), held(not left, f"temporary files left: {left}", POOR))


@fault("5.1", "a second Snakemake beside a live one", "refused; the first one finishes")
def second_snakemake(study: Study) -> Found:
    begin_again(study)
    with study.started(study.command()) as run:
        wait_until(lambda: study.rows())
        os.kill(run.pid, signal.SIGSTOP)
        second = study.snakemake()
        os.kill(run.pid, signal.SIGCONT)
        run.communicate(timeout=120)
    locked = re.search("in use by process", second.text) and second.code == 1
    if not locked:
        return Found(BAD, f"the second: exit {second.code}: {message(second)}")
    return held(run.returncode == 0, f"the second: in use; the first: {run.returncode}")
