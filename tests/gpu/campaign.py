"""A study on a lent GPU without a network, in commands of some minutes: see README.md.

    PYTHONPATH=scripts:SITE python3 -m tests.gpu.campaign OUT --minutes 9.5 --models MODEL...

A step that is complete leaves a file in `campaign/`. What a command has measured lies in OUT after
each step, in parts that may travel; the next command goes on from them (--home), or from the folder
itself.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

RECORD = Path("campaign")
KEPT = ("results", "logs", str(RECORD))
PARTS = "archive.tar.gz."
STEPS = ("sensor", "tests", "study", "peers", "kernels")
_LEAST_S = {"sensor": 120, "tests": 130, "study": 90, "peers": 60, "kernels": 30}
_ENDING_S = 45.0
"""For the measurement in progress to end."""

_KILL_S = 10.0
_PACK_S = 15.0
_IDENTIFYING = re.compile("Serial Number|UUID|GUID|PDI|Process|  Name  ")


def main() -> None:
    """Run what is left to do, until too little time is left."""
    began_s = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="folder of what is to travel home")
    parser.add_argument("--minutes", type=float, required=True, help="when it must have ended")
    parser.add_argument("--home", type=Path, help="what an earlier command left in its OUT")
    parser.add_argument("--models", nargs="+", required=True, help="the study grows by each")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--loop-s", default="30", help="of each loop beside nvidia-smi")
    parser.add_argument("--configfile", nargs="+", default=["config/gpu.yaml"])
    given = parser.parse_args()
    if given.home and not Path("results").exists():
        unpack(given.home)
    RECORD.mkdir(exist_ok=True)
    given.out.mkdir(parents=True, exist_ok=True)
    for name, command in commands(given):
        done = RECORD / f"{name}.done"
        left_s = began_s + 60 * given.minutes - _PACK_S - time.monotonic()
        if done.exists():
            continue
        if left_s < _LEAST_S[name.partition(" ")[0]]:
            print(f"{name}: too little time; {left_s:.0f} s are left. To be continued.")
            return
        start_s = time.monotonic()
        status = run(command, left_s, RECORD / f"{name}.txt")
        if status == 0 or (name == "tests" and status == 1):
            done.touch()
        said = {None: "stopped", 0: "complete"}.get(status, f"failed with status {status}")
        print(f"{name}: {time.monotonic() - start_s:.0f} s, {said}", flush=True)
        pack(given.out)
    print("Nothing is left to do.")


def commands(given: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """The steps with what they run, in order."""
    python = [sys.executable, "-m"]
    snakemake = [*python, "snakemake", "--cores", str(os.cpu_count() or 1)]
    study = ["--configfile", *given.configfile]
    if "sensor" in given.steps:
        settings_of_card()
        yield "sensor", [*snakemake, "characterize", *study]
    if "tests" in given.steps:  # the sensor is characterised already
        chosen = ["tests/gpu", "-m", "gpu", "-k", "not characterised", "-p", "no:cacheprovider"]
        yield "tests", [*python, "pytest", *chosen]
    if "study" in given.steps:  # one model after the other, so that the tables hold complete ones
        for number in range(1, len(given.models) + 1):
            settings = [f"models={json.dumps(given.models[:number])}", "torchvision=", "rounds=1"]
            name = f"study of {given.models[number - 1]}"
            yield name, [*snakemake, "tables", *study, "--config", *settings]
        yield "study", [*snakemake, "tables", *study]
    database = "results/database.parquet"
    if "peers" in given.steps:
        output = str(RECORD / "peers.csv")
        yield "peers", [*python, "tests.gpu.peers", database, output, "--loop-s", given.loop_s]
    if "kernels" in given.steps:
        output = str(RECORD / "kernels.csv")
        yield "kernels", [*python, "tests.gpu.kernels", database, output, *given.models]


def run(command: Sequence[str], seconds: float, output: Path) -> int | None:
    """Run a command for these seconds at most; its status, or None if it was stopped.

    SIGTERM asks it first: Snakemake then finishes the jobs that are running, and starts no more.
    """
    stopped = False
    with (
        output.open("wb") as file,
        subprocess.Popen(command, process_group=0, stdout=file, stderr=file) as process,
    ):
        for patience_s, ended_by in (
            (seconds - _ENDING_S - _KILL_S, signal.SIGTERM),
            (_ENDING_S, signal.SIGINT),
            (_KILL_S, signal.SIGKILL),
        ):
            try:
                process.wait(max(patience_s, 0.0))
                break
            except subprocess.TimeoutExpired:
                stopped = True
                if ended_by == signal.SIGTERM:
                    process.terminate()
                else:
                    os.killpg(process.pid, ended_by)
    return None if stopped else process.returncode


def pack(there: Path, largest: str = "16M") -> None:
    """Write what is kept into parts of at most that size, instead of earlier ones, which stay until
    all are written.
    """
    kept = [each for each in KEPT if Path(each).exists()]
    new = there / "new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    packing = ["tar", "--create", "--gzip", "--dereference", *kept]
    with subprocess.Popen(packing, stdout=subprocess.PIPE) as tar:
        split = ["split", f"--bytes={largest}", "--numeric-suffixes=0", "--suffix-length=3"]
        subprocess.run([*split, "-", str(new / PARTS)], stdin=tar.stdout, check=True)
    if tar.returncode:
        raise OSError(f"tar failed with status {tar.returncode}; {there} is as it was")
    for path in there.glob(f"{PARTS}*"):
        path.unlink()
    for path in new.iterdir():
        path.rename(there / path.name)
    new.rmdir()


def unpack(there: Path) -> None:
    """Put what a command has brought home into this folder; files that are newer here stay."""
    if not (parts := sorted(map(str, there.glob(f"{PARTS}*")))):
        raise SystemExit(f"{there} has no {PARTS}*: copy there what the last command wrote")
    unpacking = ["tar", "--extract", "--gzip", "--keep-newer-files", "--warning=none"]
    with subprocess.Popen(["cat", *parts], stdout=subprocess.PIPE) as cat:
        subprocess.run(unpacking, stdin=cat.stdout, check=True)


def settings_of_card() -> None:
    """Clocks, limits and modes of the card, as its own tool prints them, without its identity."""
    if shutil.which("nvidia-smi"):
        text = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True).stdout
        kept = [line for line in text.splitlines() if not _IDENTIFYING.search(line)]
        (RECORD / "nvidia-smi.txt").write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
