"""A command with a time limit: the steps that it runs, until too little time is left."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from campaign import RECORD
from opcost.files import read_json
from opcost.values import TEXT, Rule, check_values, list_of, number

_KILL_S = 10.0
_STATE = {
    "done": list_of(TEXT),
    "taken_s": Rule(
        "an object of seconds",
        lambda value: isinstance(value, dict) and all(map(number(0).holds, value.values())),
    ),
}


@dataclass
class Piece:
    """One command of a campaign, in the repository's root; `ends_s` is of the monotonic clock.

    `keep` is called after each step. `done` names the finished steps; `taken_s` is of each step, in
    all pieces so far.
    """

    ends_s: float
    root: Path = Path()
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    keep: Callable[[], object] = lambda: None
    done: set[str] = field(default_factory=set)
    taken_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Go on from the record of earlier pieces."""
        self.record = self.root / RECORD
        self.record.mkdir(parents=True, exist_ok=True)
        state = self.record / "state.json"
        if state.exists():
            remedy = "delete it to begin again; measurements are kept"
            found = read_json(state, remedy)
            check_values(found, _STATE, state, remedy)
            self.done, self.taken_s = set(found["done"]), found["taken_s"]

    def left_s(self) -> float:
        """Seconds until this piece must have ended."""
        return self.ends_s - time.monotonic()

    def say(self, text: str) -> None:
        """A line for the terminal and the record."""
        line = f"{time.strftime('%H:%M:%S', time.gmtime())} UTC  {text}"
        print(line, flush=True)
        with (self.record / "log.txt").open("a") as log:
            print(line, file=log)

    def run(
        self,
        command: Sequence[str],
        seconds: float,
        output: Path | None = None,
        ending_s: float = 0.0,
    ) -> int | None:
        """Run a command for these seconds at most; returns its status, or None if it was stopped.

        SIGTERM asks it first, `ending_s` earlier: Snakemake then finishes the jobs that are
        running, and starts no more.
        """
        with open(output or os.devnull, "wb") as file:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=self.environment,
                process_group=0,
                stdout=file if output else None,
                stderr=subprocess.STDOUT if output else None,
            )
            with process:
                try:
                    return process.wait(max(0.0, seconds - ending_s))
                except subprocess.TimeoutExpired:
                    process.terminate()
                for patience_s, ended_by in (
                    (ending_s, signal.SIGINT),
                    (_KILL_S, signal.SIGKILL),
                ):
                    try:
                        process.wait(patience_s)
                        break
                    except subprocess.TimeoutExpired:
                        os.killpg(process.pid, ended_by)
        return None


@dataclass(frozen=True)
class Step:
    """A step of a campaign, which needs `least_s` at once and gets `most_s` in all pieces together.

    `run` is told the seconds that it may take. It returns what to say, and whether all is done.
    """

    name: str
    least_s: float
    run: Callable[[Piece, float], tuple[str, bool]]
    most_s: float = float("inf")


def run_steps(piece: Piece, steps: Sequence[Step]) -> bool:
    """Run what is not done yet, in order, and keep what each step has found.

    Returns whether all is done.
    """
    for step in steps:
        if step.name in piece.done:
            continue
        taken_s = piece.taken_s.get(step.name, 0.0)
        seconds = min(piece.left_s(), step.most_s - taken_s)
        if piece.left_s() < step.least_s:
            piece.say(f"{step.name}: needs {step.least_s:.0f} s; {piece.left_s():.0f} s are left")
            break
        began_s = time.monotonic()
        said, finished = step.run(piece, seconds)
        taken_s += time.monotonic() - began_s
        piece.taken_s[step.name] = taken_s
        if not finished and step.most_s - taken_s < step.least_s:
            said += "; its time is used up"
            finished = True
        if finished:
            piece.done.add(step.name)
        state = {"done": sorted(piece.done), "taken_s": piece.taken_s}
        (piece.record / "state.json").write_text(json.dumps(state))
        piece.say(f"{step.name}: {time.monotonic() - began_s:.0f} s, {said}")
        piece.keep()
    return all(step.name in piece.done for step in steps)
