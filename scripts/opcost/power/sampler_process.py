"""The process that reads the meters, as seen by the program that started it.

Commands are lines, written without waiting: a meter that hangs holds up the sampler, and must not
hold up the program. `now` has the meters read, `flush NUMBER` what was read written; the answer to
that is the number with the meters that have failed. It comes through a pipe of its own: anything
may print to the standard output. A fork of the program shares the pipes, and uses none of them.
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
"""How long a sampler is waited for that has left a question unanswered."""

_LONGEST_SAID = 1_000_000
_MOMENT_S = 0.05
_SILENT = "the process that reads the meters does not answer"


class SamplerProcess:
    """A running sampler; `about` is what it says that it records.

    Raises OpcostError with its complaint if it does not start.
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
        self._complaints = self._unnamed_file()  # a pipe might fill up
        os.set_blocking(self._answers.number, False)
        os.set_blocking(self._commands.number, False)
        # -P: a file in this folder may have the name of a standard module.
        command = [sys.executable, "-P", "-m", "opcost.power.sampler", str(folder)]
        about = {**settings, "answers": answering.number, "parent": self.owner}
        self.process = subprocess.Popen(
            [*command, json.dumps(about)],
            stdin=obeyed.number,
            stdout=subprocess.DEVNULL,
            stderr=self._complaints.number,
            pass_fds=[answering.number],
            env=_environment(),
            start_new_session=True,  # signals of the terminal are not for it
        )
        answering.close()
        obeyed.close()

    def _pipe(self) -> tuple[Descriptor, Descriptor]:
        """Its ends to read from, and to write to."""
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
        """Whether this process started it, and is no fork of the one that did."""
        return os.getpid() == self.owner

    @property
    def is_running(self) -> bool:
        """Whether it reads the meters."""
        return self.is_own and not self._ended and self._is_heard and self.process.poll() is None

    @property
    def _is_heard(self) -> bool:
        """Whether the program has left the pipes alone."""
        return self._commands.is_open and self._answers.is_open

    def read_now(self) -> None:
        """Have the meters read, soon."""
        self._tell("now")

    def flush(self) -> None:
        """Have all readings written, and tell the meters that are `lost`; for one that has ended,
        `fault` tells more. Raises OpcostError if it does not answer.
        """
        if not self.is_own:
            return  # another thread of the parent may have held the lock
        with self._asking:  # threads may ask at the same time
            self._asked += 1
            asked = self._asked
            if not self.is_running:
                return
            if not self._tell(f"flush {asked}"):
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
        """Why it reads the meters no more."""
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
        """End it. Returns the last line of what it complained about."""
        if not self.is_own or self._ended:
            return ""
        self._ended = True
        self._commands.close()
        try:
            self.process.wait(_IMPATIENT_S if self.silent else _ANSWER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            with suppress(subprocess.TimeoutExpired):  # it cannot be killed in a call of the kernel
                self.process.wait(_IMPATIENT_S)
        said = self._said()
        self._close()
        return said

    def _said(self) -> str:
        """The last line of what it complained about."""
        if not self._complaints.is_open:
            return ""
        said = os.pread(self._complaints.number, _LONGEST_SAID, 0).decode(errors="replace")
        lines = said.strip().splitlines()
        return lines[-1].removeprefix("opcost: ") if lines else ""

    def _tell(self, command: str) -> bool:
        """Whether it got the command: not if it has ended, or has not read the earlier ones."""
        if not self.is_running:
            return False
        try:
            os.write(self._commands.number, f"{command}\n".encode())
        except (BrokenPipeError, BlockingIOError):
            return False
        return True

    def _line(self, within_s: float) -> bytes:
        """The next line that it says. Raises OpcostError after so many seconds."""
        end_s = time.monotonic() + within_s
        while (line := self._heard_line()) is None:
            if time.monotonic() > end_s or not self.is_running:
                raise OpcostError(_SILENT)
        return line

    def _heard_line(self) -> bytes | None:
        """The next line, or None if there is none after a moment: the handler of a signal may have
        taken it meanwhile.
        """
        if b"\n" not in self._heard and self._answers.is_open:
            said = select.poll()  # select() knows descriptors below 1024 alone
            said.register(self._answers.number, select.POLLIN)
            said.poll(1000 * _MOMENT_S)
            with suppress(BlockingIOError):
                self._heard += os.read(self._answers.number, 65536)
        if b"\n" not in self._heard:
            return None
        line, _, self._heard = self._heard.partition(b"\n")
        return line


def _environment() -> dict[str, str]:
    """That of this process, in which the sampler finds this opcost."""
    here = str(Path(opcost.__file__).parent.parent)
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([here, *([others] if others else [])])}
