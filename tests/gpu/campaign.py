"""What to measure on a lent GPU without a network, in commands of some minutes: see README.md.

    PYTHONPATH=scripts:SITE python3 -m tests.gpu.campaign OUT --minutes 9 [--home HOME]

The pieces of a list are worked off from its top until the time is over. A stage of a piece that is
complete leaves a file in `campaign/`, with the conditions that it was measured under. What is
measured lies in OUT at once; the next command goes on from it.
"""

import argparse
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from opcost.addresses import Addresses
from opcost.errors import OpcostError
from opcost.plain_yaml import read_yaml
from opcost.results_folder import DATABASE
from opcost.study import load_study

from tests.gpu.archive import Archive, parts_in, unpack
from tests.gpu.predictions import write_everything

PIECES = Path(__file__).with_name("evidence.yaml")
RESULTS, RECORD = Path("results"), Path("campaign")
STAGES = ("operators", "predictions", "end_to_end")
"""Of a piece, unless it names its own: whole models come after their prediction."""

_LOOK_S, _LEAST_S = 0.5, 30.0
_ENDING_S = 30.0
"""For the measurement in progress to end."""

_KILL_S = 5.0
_IDENTIFYING = re.compile("Serial Number|UUID|GUID|PDI|Process|  Name  ")
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass
class Piece:
    """An entry of the list: a study with its stages, or a command."""

    name: str
    decides: str
    seconds: float
    study: dict[str, Any] = field(default_factory=dict)
    stages: Sequence[str] = STAGES
    command: Sequence[str] = ()
    each_board: bool = False

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """What each of its stages runs, in order."""
        python, file = [sys.executable, "-m"], RECORD / f"{self.name}.yaml"
        if self.command:
            yield "program", [*python, *self.command]
            return
        file.write_text(yaml.safe_dump(self.study, sort_keys=False))
        for stage in self.stages:
            if stage == "predictions":
                yield stage, [*python, "tests.gpu.predictions", str(file)]
            else:
                snakemake = [*python, "snakemake", "--cores", str(os.cpu_count() or 1)]
                yield stage, [*snakemake, "--keep-going", stage, "--configfile", str(file)]

    def conditions(self) -> str:
        """The folders of its results, as far as known without opening the device."""
        folders = Addresses(load_study(self.study)).folders.values() if self.study else ()
        return "\n".join(map(str, folders))


def pieces_in(path: Path) -> list[Piece]:
    """The pieces of a list, whose `common` settings a study has unless it states others."""
    document = read_yaml(path)
    found = [Piece(**each) for each in document["pieces"]]
    for each in filter(lambda piece: piece.study, found):
        each.study = {**document["common"], **each.study}
    return found


class Clock:
    """The time that is left."""

    def __init__(self, minutes: float) -> None:
        self._ends_s = time.monotonic() + 60 * minutes

    def stop(self, *_: object) -> None:
        """Leave time to end only."""
        self._ends_s = min(self._ends_s, time.monotonic() + _ENDING_S + _KILL_S)

    @property
    def left_s(self) -> float:
        """Seconds until everything must have ended."""
        return self._ends_s - time.monotonic()


def main() -> None:
    """Work off what is left to do, until too little time is left."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="folder of what is to travel home")
    parser.add_argument("--minutes", type=float, required=True, help="when it must have ended")
    parser.add_argument("--home", type=Path, help="what an earlier command left in its OUT")
    parser.add_argument("--pieces", type=Path, default=PIECES, help="another list")
    parser.add_argument("--only", nargs="+", metavar="PIECE", default=(), help="some pieces of it")
    parser.add_argument("--until", choices=STAGES, default=STAGES[-1], help="the last stage")
    given = parser.parse_args()
    if given.minutes <= 0 or not given.pieces.is_file():
        parser.error(f"--minutes is to be above 0, and {given.pieces} to be a list of pieces")
    pieces = {each.name: each for each in pieces_in(given.pieces)}
    if unknown := {*given.only} - {*pieces}:
        parser.error(f"no piece {', '.join(unknown)}; there are {', '.join(pieces)}")
    if parts_in(given.out) and not given.home and not RESULTS.exists():
        parser.error(f"{given.out} holds what was measured before: give it as --home, too")
    clock = Clock(given.minutes)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, clock.stop)
    if given.home:
        unpack(given.home)
    RECORD.mkdir(exist_ok=True)
    archive = Archive(given.out)
    archive.pack(to_keep())
    settings_of_card()
    chosen = [each for name, each in pieces.items() if not given.only or name in given.only]
    left = [each.name for each in chosen if not complete(each, given.until, clock, archive)]
    archive.pack(to_keep())
    sizes = [part.stat().st_size for part in parts_in(given.out)]
    print(f"{given.out}: {len(sizes)} files, {sum(sizes) / 2**20:.1f} MiB together.")
    print(f"To be continued: {', '.join(left)}." if left else "Nothing is left to do.")


def complete(piece: Piece, until: str, clock: Clock, archive: Archive) -> bool:
    """Run the stages of a piece that are not complete, each only after those before it.

    A piece that is complete on one GPU is, unless it is of each board. Otherwise, all of its stages
    are of the same GPU, driver and software.
    """
    try:
        conditions, commands = piece.conditions(), dict(piece.commands())
    except OpcostError as error:
        print(f"{piece.name}: {error}")
        return False
    later = STAGES[STAGES.index(until) + 1 :]
    stages = [stage for stage in commands if stage not in later]
    done = {stage: RECORD / f"{piece.name}.{stage}.done" for stage in stages}
    if done[stages[-1]].exists() and not piece.each_board:
        return True
    for stage in stages:
        if done[stage].exists() and done[stage].read_text() == conditions:
            continue
        # A program does not go on where it was stopped.
        needed_s = piece.seconds if piece.command else _LEAST_S
        if clock.left_s < needed_s + _ENDING_S + _KILL_S:
            return False
        if str(DATABASE) in piece.command and not write_everything():
            print(f"{piece.name}: nothing is measured yet")
            return False
        start_s = time.monotonic()
        status = run(commands[stage], clock, RECORD / f"{piece.name}.{stage}.txt", archive)
        said = {None: "stopped", 0: "complete"}.get(status, f"failed with status {status}")
        print(f"{piece.name}: {stage}: {time.monotonic() - start_s:.0f} s, {said}", flush=True)
        # A program that fails would fail again; of a study, Snakemake tries what failed.
        if ended := status == 0 or (piece.command and status is not None):
            done[stage].write_text(conditions)
        archive.add(to_keep())
        if not ended:
            return False
    return True


def run(command: Sequence[str], clock: Clock, output: Path, archive: Archive) -> int | None:
    """Run a command as long as there is time; its status, or None if it was stopped.

    SIGTERM asks it first: Snakemake then finishes the jobs that are running, and starts no more.
    """
    signals = {signal.SIGTERM: _ENDING_S + _KILL_S, signal.SIGINT: _KILL_S, signal.SIGKILL: 0.0}
    left = list(signals)
    with (
        output.open("wb") as file,
        subprocess.Popen(
            command, process_group=0, stdout=file, stderr=file, preexec_fn=_end_with_parent
        ) as process,
    ):
        try:
            while process.poll() is None:
                if left and clock.left_s <= signals[left[0]]:
                    if left[0] == signal.SIGTERM:
                        process.terminate()
                    else:
                        os.killpg(process.pid, left[0])
                    left.pop(0)
                time.sleep(_LOOK_S)
                archive.add(measured())
        finally:
            process.terminate()
    return process.returncode if len(left) == len(signals) else None


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGTERM)


def measured() -> list[Path]:
    """The files of results that travel: complete ones. Tables are made at home."""
    found = (path for path in RESULTS.rglob("*") if path.is_file())
    return [path for path in found if len(path.parts) > 2 and not path.name.startswith(".")]


def to_keep() -> list[Path]:
    """All files that travel. Logs stay: what fails is a row with the reason."""
    return [*measured(), *(path for path in RECORD.glob("*.*") if path.is_file())]


def settings_of_card() -> None:
    """Clocks, limits and modes of the card, as its own tool prints them, without its identity."""
    if shutil.which("nvidia-smi"):
        text = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True).stdout
        kept = [line for line in text.splitlines() if not _IDENTIFYING.search(line)]
        (RECORD / f"nvidia-smi.{int(time.time())}.txt").write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
