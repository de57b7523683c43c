"""A small study in a temporary folder: measured once, and copied for each fault."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

COPIED = ("Snakefile", "workflow", "profiles", "scripts", "config", "envs", "data", "docs")
STUDY = "tests/study"
CONFIG = f"{STUDY}/config.yaml"
TIMEOUT_S = 150
OWN_TMP = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /tmp && exec "$@"']
"""Begins a command for which /tmp, where devices' locks lie, is another folder; for root only."""
NOBODY = 65534
AS_NOBODY = [
    *("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"),
    # Python may lie where only root looks. To write, or to change, they may as little as anybody.
    *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"),
]
"""Begins a command that is run by another user; for root only."""


@cache
def may_mount() -> bool:
    """Whether this user may mount, and this Python does not lie in /tmp."""
    with tempfile.TemporaryDirectory() as folder:
        program = [*OWN_TMP, folder, sys.executable, "-c", "pass"]
        return subprocess.run(program, capture_output=True).returncode == 0


FOREIGN_EXCEPTION = re.compile(
    r"^(?!WorkflowError|CalledProcessError|RuleException|Protected|Missing|Incomplete|Lock)"
    r"\w+(Error|Exception)\b.* in (file|rule) ",
    re.MULTILINE,
)
"""How Snakemake shows an exception that nobody foresaw."""
OUR_EXCEPTION = re.compile(r"OpcostError|WorkflowError:\s+(?!At least one job|\s)")


@dataclass(frozen=True)
class Outcome:
    """How a command ended; its code is None if it had to be killed because it hung."""

    code: int | None
    text: str
    seconds: float

    @property
    def hung(self) -> bool:
        """Whether it was still running when its time was up."""
        return self.code is None

    @property
    def traceback(self) -> bool:
        """Whether it showed a traceback of Python's, or Snakemake's short form of one."""
        in_snakemake = FOREIGN_EXCEPTION.search(self.text) and not OUR_EXCEPTION.search(self.text)
        return "Traceback (most recent call last)" in self.text or bool(in_snakemake)


class Study:
    """The copy of a checkout in which a study was run, or is to be run."""

    def __init__(self, folder: Path) -> None:
        self.root, self.temporary = folder / "study", folder / "tmp"
        self.results = self.root / "results"
        self.config = self.root / CONFIG

    @property
    def target(self) -> Path:
        """Where its target was measured, under the conditions that came last."""
        folders = list(self.results.glob("local/*/"))
        return max(folders, key=lambda each: each.stat().st_mtime_ns, default=self.results / "none")

    @property
    def manifest(self) -> Path:
        """The unique tuples of its models."""
        return next(self.results.glob("studies/*/operator_tuples.json"))

    def make(self, checkout: Path) -> None:
        """Copy what a study needs from a checkout."""
        self.temporary.mkdir(parents=True)
        ignored = shutil.ignore_patterns("__pycache__", "_build")
        for name in (*COPIED, STUDY):
            source, copy = checkout / name, self.root / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy, ignore=ignored, symlinks=True)
            else:
                shutil.copy2(source, copy)
        for name in ("README.md", "SECURITY.md"):
            if (checkout / name).is_file():
                shutil.copy2(checkout / name, self.root / name)
        # Enough second measurements to know how well one reproduces.
        self.configure(rounds=2)

    def copied(self, folder: Path) -> "Study":
        """Another study, equal to this one, file times and Snakemake's records included."""
        folder.mkdir()
        subprocess.run(["cp", "-a", self.root, folder / "study"], check=True)
        copy = Study(folder)
        copy.temporary.mkdir()
        # A few jobs alone take less time than to start a server for them.
        copy.configure(workers="plain")
        return copy

    def configure(self, **changes: Any) -> None:
        """Change the top level of the study's configuration."""
        self.config.write_text(
            yaml.safe_dump(yaml.safe_load(self.config.read_text()) | changes, allow_unicode=True)
        )

    def measure_with(self, **changes: Any) -> None:
        """Change settings of the measurement."""
        settings = yaml.safe_load(self.config.read_text())["measurement"]
        self.configure(measurement=settings | changes)

    def aim(self, **changes: Any) -> None:
        """Change the target."""
        self.configure(targets={"local": {"device": "cpu", "threads": 1} | changes})

    def give_to_nobody(self, *paths: Path) -> None:
        """Make these folders those of another user."""
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", *paths], check=True)

    def rows(self, kind: str = "operators") -> list[Path]:
        """The files of one kind of measurement."""
        return sorted((self.target / kind).glob("*.parquet"))

    def environment(self, **changes: str) -> dict[str, str]:
        """Of the commands that are run here: this package, and a temporary folder of its own."""
        temporary = str(self.temporary)
        own = {
            "PYTHONPATH": str(self.root / "scripts"),
            "TMPDIR": temporary,
            "OPCOST_LOCKS": temporary,
        }
        kept = {key: value for key, value in os.environ.items() if not key.startswith("OPCOST_")}
        return kept | own | changes

    def command(self, *arguments: str) -> list[str]:
        """Snakemake on this study."""
        snakemake = [sys.executable, "-m", "snakemake", "--cores", "1", "--quiet", "host"]
        return [*snakemake, "--configfile", CONFIG, *arguments]

    def snakemake(self, *arguments: str, **options: Any) -> Outcome:
        """Run the workflow."""
        return self.execute(self.command(*arguments), **options)

    def opcost(self, *arguments: str | Path, **options: Any) -> Outcome:
        """Run opcost's command line."""
        return self.execute([sys.executable, "-m", "opcost", *map(str, arguments)], **options)

    def execute(
        self,
        command: list[str],
        timeout_s: float = TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
        nobody: bool = False,
        **options: Any,
    ) -> Outcome:
        """Run a command to its end, or kill it with all that it started when its time is up."""
        if nobody:
            command = [*AS_NOBODY, *command]
            environment = {"HOME": str(self.temporary)} | dict(environment or {})
        began = time.monotonic()
        with self.started(command, environment, **options) as process:
            try:
                output, _ = process.communicate(timeout=timeout_s)
                code = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, code = process.communicate()[0], None
        return Outcome(code, output.decode(errors="replace"), time.monotonic() - began)

    @contextmanager
    def started(
        self, command: list[str], environment: Mapping[str, str] | None = None, **options: Any
    ) -> Iterator[subprocess.Popen]:
        """A command in the background, a session of its own, which does not outlive the block."""
        if may_mount():  # else studies wait for one another's measurements
            command = [*OWN_TMP, str(self.temporary), *command]
        process = subprocess.Popen(
            command,
            cwd=options.pop("folder", self.root),
            env=self.environment(**(environment or {})),
            stdin=subprocess.DEVNULL,
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=options.pop("stderr", subprocess.STDOUT),
            start_new_session=True,
            **options,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def wait_until(condition: Callable[[], Any], timeout_s: float = 120) -> Any:
    """What the condition is, once it is true. Raises TimeoutError after that time."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("what the fault waits for did not happen")
        time.sleep(0.02)
    return found
