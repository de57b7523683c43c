"""A recording: the folder that a sampler writes, and what is read from it.

    about.json      what was recorded: sources, period, clocks, labels
    samples         records of equal size, appended at least once a second
    events.jsonl    a line for each beginning and end of a window, and each metric

A record that was cut off by a kill is ignored, so what is left is readable up to the last second.
"""

import fcntl
import json
import os
import time
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from opcost.errors import OpcostError
from opcost.files import lines_of, opened, read_json, write_json
from opcost.values import OBJECT, check_values, list_of, number

SAMPLE = np.dtype(
    [
        ("time_s", "f8"),
        ("source", "u1"),
        ("power_w", "f8"),
        ("counter_j", "f8"),
        ("sm_clock_mhz", "f4"),
        ("memory_clock_mhz", "f4"),
        ("temperature_c", "f4"),
        ("utilisation", "f4"),
        ("power_limit_w", "f4"),
        ("power_capped_s", "f8"),
        ("thermal_throttle_s", "f8"),
        ("brake_throttle_s", "f8"),
        ("other_processes", "f4"),
        ("own_use", "f8"),
        ("all_use", "f8"),
    ]
)
"""A reading of a source: NaN for what it does not have, or was not asked for this time."""

FIELDS = tuple(SAMPLE.fields or ())
STATE = FIELDS[4:-2]
"""Fields that describe the state of the device; they are read once a second, and so is what its
user and all processes use of it (attribution.py)."""

_ENVIRONMENT = "OPCOST_RECORDINGS"
"""The environment variable with the recordings that a program runs in, as JSON: the folder of each,
and its id, because another may have taken the folder since."""

_ABOUT = {
    "sources": list_of(OBJECT),
    "missing": OBJECT,
    "period_s": number(0, above=True),
    "monotonic_s": number(),
    "unix_s": number(),
}
VERSION = 1
_TRIES = 3


@dataclass(frozen=True)
class Recording:
    """The folder of a recording."""

    folder: Path

    @property
    def samples_file(self) -> Path:
        """The file of the records."""
        return self.folder / "samples"

    @property
    def events_file(self) -> Path:
        """The file of the events."""
        return self.folder / "events.jsonl"

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write what is recorded, with both clocks at this moment."""
        clocks = {"monotonic_s": time.monotonic(), "unix_s": time.time()}
        known = {"version": VERSION, "id": uuid4().hex, **clocks}
        write_json(self.folder / "about.json", {**known, **about})

    @property
    def about(self) -> dict[str, Any]:
        """What is recorded. Raises OpcostError for a damaged file, or one of another version."""
        path = self.folder / "about.json"
        found: dict[str, Any] = read_json(path, "it is not a recording of opcost")
        if found.get("version") != VERSION:
            raise OpcostError(
                f"{path} is of version {found.get('version')!r} of recordings, this opcost reads "
                f"{VERSION}: delete {self.folder}, or finish it with the opcost that wrote it"
            )
        return found

    def check(self) -> None:
        """Raise OpcostError if what is recorded is not described as opcost does."""
        remedy = f"it is damaged: delete {self.folder}"
        check_values({**dict.fromkeys(_ABOUT), **self.about}, _ABOUT, self.folder, remedy)

    @property
    def size(self) -> int:
        """The number of complete records."""
        return len(self.mapped())

    @property
    def is_written(self) -> bool:
        """Whether a sampler still appends to it."""
        try:
            with opened(self.samples_file) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OpcostError:
            return False
        except BlockingIOError:
            return True
        return False

    def samples(self, first: int = 0, most: int | None = None) -> NDArray[np.void]:
        """The complete records from a position on, at most `most`."""
        return np.array(self.mapped()[first : None if most is None else first + most])

    def mapped(self) -> NDArray[np.void]:
        """All complete records, which are read from the file where they are needed; zeros at the
        end, as of a power failure, are none. A file that its sampler has deleted has none.
        """
        try:
            with opened(self.samples_file) as file:
                size = os.fstat(file.fileno()).st_size // SAMPLE.itemsize
                if not size:
                    return np.empty(0, SAMPLE)
                found = np.memmap(file, SAMPLE, "r", shape=(size,))
        except OpcostError:
            return np.empty(0, SAMPLE)
        times_s = found["time_s"]
        if times_s[-1] > 0:
            return found
        return found[: bisect_left(range(size), 1, key=lambda place: not times_s[place] > 0)]

    def note(self, event: Mapping[str, Any]) -> None:
        """Append an event. If it cannot be written, as on a full disk, the program goes on."""
        text = json.dumps({"time_s": time.monotonic(), **event}, default=str)
        line = f"\n{text}\n"  # what a full disk has cut does not spoil it
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            descriptor = os.open(self.events_file, flags, 0o644)
            try:
                os.write(descriptor, line.encode())  # one write: lines of processes stay whole
            finally:
                os.close(descriptor)
        except OSError as error:
            warnings.warn(f"opcost: {self.events_file} cannot be written: {error}", stacklevel=2)

    def lost(self) -> dict[str, str]:
        """Device -> why its meter failed, for those whose did and that did not come back."""
        lost: dict[str, str] = {}
        for each in self.events():
            if "lost" in each:
                lost[each["lost"]] = each["reason"]
            lost.pop(each.get("back", ""), None)
        return lost

    def events(self) -> Iterator[dict[str, Any]]:
        """All complete events; what a full disk has cut, or something has damaged, is left out."""
        if not self.events_file.exists():
            return
        with lines_of(self.events_file, errors="replace") as lines:
            for line in lines:
                with suppress(json.JSONDecodeError):
                    if line.endswith("\n") and is_event(event := json.loads(line)):
                        yield event


def is_event(document: Any) -> bool:
    """Whether a document is an event: one of a window has a beginning and an end."""
    if not isinstance(document, dict):
        return False
    moments = [document.get(name) for name in ("start_s", "end_s")]
    return "window" not in document or all(map(number().holds, moments))


def claim(folder: Path) -> int:
    """Make the folder of a recording, or take an existing one. Returns the descriptor by which this
    process has it, until that is closed.

    Raises OpcostError if another process has it.
    """
    for _ in range(_TRIES):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.exists() and os.path.samestat(os.fstat(descriptor), folder.stat()):
                return descriptor
        os.close(descriptor)  # of another process, which may just have deleted the folder
    raise OpcostError(
        f"another measurement is writing to {folder}: wait for its end, or name another output"
    )


def around() -> list[Recording]:
    """The recordings that this program runs in, which `opcost measure` began around it."""
    return [
        Recording(Path(each["folder"]))
        for each in _named()
        if _identity(Path(each["folder"]) / "about.json") == each["id"]
    ]


def environment_in(recording: Recording) -> dict[str, str]:
    """The variables of a program that runs in a recording, as well as in those around this one."""
    own = {"folder": str(recording.folder), "id": recording.about["id"]}
    return {_ENVIRONMENT: json.dumps([*_named(), own])}


def _named() -> list[dict[str, str]]:
    """Those of the environment variable; it may be somebody else's."""
    try:
        found = json.loads(os.environ.get(_ENVIRONMENT, "[]"))
    except ValueError:
        return []
    return [each for each in found if _is_named(each)] if isinstance(found, list) else []


def _is_named(found: Any) -> bool:
    return isinstance(found, dict) and all(
        isinstance(found.get(name), str) for name in ("folder", "id")
    )


def _identity(about: Path) -> str | None:
    """The id of the recording that is described in a file, which is read when it is another."""
    try:
        state = about.stat()
        return _read_identity(about, state.st_ino, state.st_mtime_ns)
    except (OSError, OpcostError):
        return None


@lru_cache(maxsize=16)
def _read_identity(about: Path, _inode: int, _changed_ns: int) -> str | None:
    identity: str | None = Recording(about.parent).about.get("id")
    return identity
