"""Copies of the repository, to run Snakemake in."""

import contextlib
import copy
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import yaml
from opcost.rows import records, schemas

from tests import warm_python

REPOSITORY = Path(__file__).parent.parent
STUDY = REPOSITORY / "tests" / "study"
# The profile's `quiet` would hide which rules run.
ARGUMENTS = ["--cores", "1", "--quiet", "host", "--configfile", "tests/study/config.yaml"]
MEASUREMENTS = "results/local/*/operators/*.parquet"


class Checkout:
    """A copy of the repository, to run Snakemake in: the one in that folder, or a new one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        if root.exists():
            return
        for name in (
            "Snakefile",
            "workflow",
            "profiles",
            "scripts/collect.py",
            "scripts/compare.py",
            "scripts/database.py",
            "scripts/models.py",
            "scripts/plan.py",
            "scripts/plan_round.py",
            "scripts/report.py",
            "config",
            "envs",
            "tests/study",
        ):
            source, there = REPOSITORY / name, root / name
            there.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, there, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, there)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "snakemake", *ARGUMENTS]

    def run(self, *arguments: str, fresh: bool = False) -> subprocess.CompletedProcess:
        """Run Snakemake; `fresh`: each process imports all that it needs, as it does for a user."""
        if fresh:
            command = [*self.command(), *arguments]
            return subprocess.run(
                command, cwd=self.root, capture_output=True, text=True, timeout=300
            )
        return warm_python.run([*ARGUMENTS, *arguments], self.root, os.environ)

    def copied(self, root: Path) -> Self:
        """Another, equal to this one, file times and Snakemake's records included."""
        subprocess.run(["cp", "-a", self.root, root], check=True)
        other = copy.copy(self)
        other.root = root
        return other

    def without_measurements(self) -> Self:
        """This one, whose results are extracted models, and what is known of the device."""
        for kind in ("operators", "models"):
            shutil.rmtree(self.folder / kind)
        (self.root / "results/database.parquet").unlink()
        return self

    def copy_results(self) -> None:
        """In their place is a copy, whose files are all new."""
        results, copied = self.root / "results", self.root / "copied"
        shutil.copytree(results, copied)
        shutil.rmtree(results)
        copied.rename(results)

    @property
    def folder(self) -> Path:
        """Where the target of the tiny study was measured, under the conditions that came last."""
        return max(self.root.glob("results/local/*/"), key=lambda each: each.stat().st_mtime_ns)

    def started(self, *arguments: str, fresh: bool = False) -> list[str]:
        """Run, and name the rule of each job."""
        completed = self.run(*arguments, fresh=fresh)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        rules = re.findall(r"^Finished jobid: \d+ \(Rule: (\w+)\)", completed.stderr, re.MULTILINE)
        return sorted(rule for rule in rules if rule not in ("all", "default", "characterize"))


def edit(path: Path, change) -> None:
    document = yaml.safe_load(path.read_text())
    change(document)
    path.write_text(yaml.safe_dump(document))


def configure(checkout, **changes) -> None:
    edit(checkout.root / "tests/study/config.yaml", lambda config: config.update(changes))


def stamps(checkout) -> dict[str, int]:
    paths = checkout.root.glob(MEASUREMENTS)
    return {str(path.relative_to(checkout.root)): path.stat().st_mtime_ns for path in paths}


@contextlib.contextmanager
def running(checkout, measured: int):
    """A run in the background, from the moment that it has measured some tuples."""
    with subprocess.Popen(
        checkout.command(),
        cwd=checkout.root,
        env=warm_python.with_warm_jobs(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as run:
        wait_until(lambda: len(stamps(checkout)) >= measured)
        yield run


def wait_until(condition, timeout_s=120):
    """What the condition is, once it is true; fails after that time."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def run_times_s(folder, tuple_id):
    """What each run of a tuple found; of disturbed ones only if all were."""
    files = sorted(folder.glob(f"operators*/{tuple_id}.parquet"))
    rows = records.read_all(files, schemas.OPERATOR).to_pylist()
    calm = [row["time_s"] for row in rows if "disturbed" not in row["flags"]]
    return calm or [row["time_s"] for row in rows]
