"""The process that reads the meters, as seen by the program that started it.

Commands are lines, written without blocking, because a meter that hangs holds up the sampler but
must not hold up the program. `now` reads the meters; `flush NUMBER` writes all readings, and its
answer is the number with the meters that have failed. Answers have their own pipe: anything may
print to standard output. A fork of the program shares the pipes, and does not use them.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any

import opcost
from opcost.errors import OpcostError
from opcost.power.descriptor import Descriptor

_START_S = 30.0
_ANSWER_S = 10.0
_IMPATIENT_S = 0.5
"""How long to wait for a sampler that has left a question unanswered."""

_LONGEST_SAID = 1_000_000
_MOMENT_S = 0.05
_SILENT = "the process that reads the meters does not answer"


class SamplerProcess:
    """A running sampler; `about` is its description of the recording.

    Raises OpcostError with its error message if it does not start.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.owner = os.getpid()
        self.silent = False
        self.lost: Mapping[str, str] = {}
        self._asked = self._answered = 0
        self._asking = RLock()  # a signal's handler may ask meanwhile
        self._heard = b""
        self._ended = False
        self._open: list[Descriptor] = []
        if not sys.executable:
            raise OpcostError(
                "power cannot be read: sys.executable names no Python to read it with"
            )
        try:
            self._start(folder, settings)
        except OSError as error:  # too many open files or processes
            self._close()
            raise OpcostError(f"power cannot be read: {error.strerror}") from error
        try:
            self.about: Mapping[str, Any] = json.loads(self._line(_START_S))
        except (OpcostError, ValueError):
            self.silent = True
            found = self.end() or f"no meter has answered for {_START_S:g} s"
            raise OpcostError(f"power cannot be read: {found}") from None
        except BaseException:  # as of the handler of a signal
            self.end()
            raise

    def _start(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._answers, answering = self._pipe()
        obeyed, self._commands = self._pipe()
        self._complaints = self._unnamed_file()  # a pipe could fill up
        os.set_blocking(self._answers.number, False)
        os.set_blocking(self._commands.number, False)
        # -P: a file in this folder may be named like a standard module.
        command = [sys.executable, "-P", "-m", "opcost.power.sampler", str(folder)]
        about = {**settings, "answers": answering.number, "parent": self.owner}
        self.process = subprocess.Popen(
            [*command, json.dumps(about)],
            stdin=obeyed.number,
            stdout=subprocess.DEVNULL,
            stderr=self._complaints.number,
            pass_fds=[answering.number],
            env=_environment(),
            start_new_session=True,  # not for signals of the terminal
        )
        answering.close()
        obeyed.close()

    def _pipe(self) -> tuple[Descriptor, Descriptor]:
        """The read end and the write end of a pipe."""
        ends = [Descriptor(number) for number in os.pipe()]
        self._open += ends
        return ends[0], ends[1]

    def _unnamed_file(self) -> Descriptor:
        with tempfile.TemporaryFile() as file:
            self._open.append(Descriptor(os.dup(file.fileno())))
        return self._open[-1]

    def _close(self) -> None:
        for descriptor in self._open:
            descriptor.close()

    @property
    def is_own(self) -> bool:
        """Whether this process started it, rather than a parent of this fork."""
        return os.getpid() == self.owner

    @property
    def is_running(self) -> bool:
        """Whether the sampler runs and can be reached."""
        return self.is_own and not self._ended and self._is_heard and self.process.poll() is None

    @property
    def _is_heard(self) -> bool:
        """Whether the program has left the pipes open."""
        return self._commands.is_open and self._answers.is_open

    def read_now(self) -> None:
        """Have the meters read soon."""
        self._send("now")

    def flush(self) -> None:
        """Have all readings written, and update `lost`; if the sampler has ended, `fault` states
        why. Raises OpcostError if it does not answer.
        """
        if not self.is_own:
            return  # another thread of the parent may have held the lock
        with self._asking:  # threads may ask at the same time
            self._asked += 1
            asked = self._asked
            if not self.is_running:
                return
            if not self._send(f"flush {asked}"):
                self.silent = True
            end_s = time.monotonic() + (_IMPATIENT_S if self.silent else _ANSWER_S)
            while self._answered < asked:
                line = self._heard_line()
                if line is not None:
                    answer = json.loads(line)
                    self._answered, self.lost = answer["flushed"], answer["lost"]
                elif not self.is_running:
                    return
                elif time.monotonic() > end_s:
                    self.silent = True
                    raise OpcostError(_SILENT)
            self.silent = False

    def fault(self) -> str | None:
        """Why the sampler reads no meters, or None if it does."""
        if not self.is_own:
            return f"process {self.owner} began this, a fork of it cannot go on: begin another here"
        if not self._is_heard and not self._ended:
            return "the program has closed the pipes to the process that reads the meters"
        code = self.process.poll()
        if code is None:
            return None
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else self._said()
        return f"the process that reads the meters has ended ({how or f'exit code {code}'})"

    def end(self) -> str:
        """End it. Returns the last line of its error output."""
        if not self.is_own or self._ended:
            return ""
        self._ended = True
        self._commands.close()
        try:
            self.process.wait(_IMPATIENT_S if self.silent else _ANSWER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            with suppress(subprocess.TimeoutExpired):  # it may hang in a system call
                self.process.wait(_IMPATIENT_S)
        said = self._said()
        self._close()
        return said

    def _said(self) -> str:
        """The last line of its error output."""
        if not self._complaints.is_open:
            return ""
        said = os.pread(self._complaints.number, _LONGEST_SAID, 0).decode(errors="replace")
        lines = said.strip().splitlines()
        return lines[-1].removeprefix("opcost: ") if lines else ""

    def _send(self, command: str) -> bool:
        """Whether the command was sent: not if it has ended, or has not read earlier ones."""
        if not self.is_running:
            return False
        try:
            os.write(self._commands.number, f"{command}\n".encode())
        except (BrokenPipeError, BlockingIOError):
            return False
        return True

    def _line(self, within_s: float) -> bytes:
        """The next line of its answers. Raises OpcostError after so many seconds."""
        end_s = time.monotonic() + within_s
        while (line := self._heard_line()) is None:
            if time.monotonic() > end_s or not self.is_running:
                raise OpcostError(_SILENT)
        return line

    def _heard_line(self) -> bytes | None:
        """The next line, or None if there is none after a moment: a signal handler may have taken
        it.
        """
        if b"\n" not in self._heard and self._answers.is_open:
            said = select.poll()  # select() only supports descriptors below 1024
            said.register(self._answers.number, select.POLLIN)
            said.poll(1000 * _MOMENT_S)
            with suppress(BlockingIOError):
                self._heard += os.read(self._answers.number, 65536)
        if b"\n" not in self._heard:
            return None
        line, _, self._heard = self._heard.partition(b"\n")
        return line


def _environment() -> dict[str, str]:
    """The environment of this process, extended so that the sampler imports this opcost."""
    here = str(Path(opcost.__file__).parent.parent)
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([here, *([others] if others else [])])}
