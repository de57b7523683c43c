"""A recording of power: the folder that a sampler writes, and how it is read.

    about.json      what was recorded: sources, period, clocks, labels
    samples         records of equal size, appended at least once a second
    events.jsonl    a line for each beginning and end of a window, and each metric

An incomplete last record is ignored, so a recording is readable up to the last second before a
kill.
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
"""A reading of a source: NaN for values that it does not have, or that were not read this time."""

FIELDS = tuple(SAMPLE.fields or ())
STATE = FIELDS[4:-2]
"""Fields that describe the state of the device; they are read once a second, as is the use of the
device by the user and by all processes (attribution.py)."""

_ENVIRONMENT = "OPCOST_RECORDINGS"
"""The environment variable with the recordings that a program runs in, as JSON: the folder of each,
and its id, because a later recording may use the same folder."""

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
        """The file of records."""
        return self.folder / "samples"

    @property
    def events_file(self) -> Path:
        """The file of events."""
        return self.folder / "events.jsonl"

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write the description, with both clocks at this moment."""
        clocks = {"monotonic_s": time.monotonic(), "unix_s": time.time()}
        known = {"version": VERSION, "id": uuid4().hex, **clocks}
        write_json(self.folder / "about.json", {**known, **about})

    @property
    def about(self) -> dict[str, Any]:
        """The description. Raises OpcostError for a damaged file, or one of another version."""
        path = self.folder / "about.json"
        found: dict[str, Any] = read_json(path, "it is not a recording of opcost")
        if found.get("version") != VERSION:
            raise OpcostError(
                f"{path} is of version {found.get('version')!r} of recordings, this opcost reads "
                f"{VERSION}: delete {self.folder}, or finish it with the opcost that wrote it"
            )
        return found

    def check(self) -> None:
        """Raise OpcostError if the description is damaged."""
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
        """All complete records, memory-mapped, without zeros at the end (a power failure leaves
        them); empty if the sampler has deleted the file.
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
        """Append an event. The program continues if it cannot be written, as on a full disk."""
        text = json.dumps({"time_s": time.monotonic(), **event}, default=str)
        line = f"\n{text}\n"  # starts a new line: a full disk may have cut the last one
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            descriptor = os.open(self.events_file, flags, 0o644)
            try:
                os.write(descriptor, line.encode())  # one write: atomic between processes
            finally:
                os.close(descriptor)
        except OSError as error:
            warnings.warn(f"opcost: {self.events_file} cannot be written: {error}", stacklevel=2)

    def lost(self) -> dict[str, str]:
        """Device -> why its meter failed, for meters that did not recover."""
        lost: dict[str, str] = {}
        for each in self.events():
            if "lost" in each:
                lost[each["lost"]] = each["reason"]
            lost.pop(each.get("back", ""), None)
        return lost

    def events(self) -> Iterator[dict[str, Any]]:
        """All complete events, without damaged ones."""
        if not self.events_file.exists():
            return
        with lines_of(self.events_file, errors="replace") as lines:
            for line in lines:
                with suppress(json.JSONDecodeError):
                    if line.endswith("\n") and is_event(event := json.loads(line)):
                        yield event


def is_event(document: Any) -> bool:
    """Whether a document is an event; an event of a window has a start and an end."""
    if not isinstance(document, dict):
        return False
    moments = [document.get(name) for name in ("start_s", "end_s")]
    return "window" not in document or all(map(number().holds, moments))


def claim(folder: Path) -> int:
    """Make the folder of a recording, or take an existing one. Returns the descriptor that holds
    it for this process until it is closed.

    Raises OpcostError if another process holds it.
    """
    for _ in range(_TRIES):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.exists() and os.path.samestat(os.fstat(descriptor), folder.stat()):
                return descriptor
        os.close(descriptor)  # another process holds it, or has just deleted the folder
    raise OpcostError(
        f"another measurement is writing to {folder}: wait for its end, or name another output"
    )


def around() -> list[Recording]:
    """The recordings that this program runs in, begun by `opcost measure`."""
    return [
        Recording(Path(each["folder"]))
        for each in _named()
        if _identity(Path(each["folder"]) / "about.json") == each["id"]
    ]


def environment_in(recording: Recording) -> dict[str, str]:
    """The environment of a program that runs in a recording, and in those around this process."""
    own = {"folder": str(recording.folder), "id": recording.about["id"]}
    return {_ENVIRONMENT: json.dumps([*_named(), own])}


def _named() -> list[dict[str, str]]:
    """The recordings named by the environment variable, if it is one of opcost."""
    try:
        found = json.loads(os.environ.get(_ENVIRONMENT, "[]"))
    except ValueError:
        return []
    if not isinstance(found, list):
        return []
    return [
        each
        for each in found
        if isinstance(each, dict)
        and all(isinstance(each.get(name), str) for name in ("folder", "id"))
    ]


def _identity(about: Path) -> str | None:
    """The id of a recording, cached until its description changes."""
    try:
        state = about.stat()
        return _read_identity(about, state.st_ino, state.st_mtime_ns)
    except (OSError, OpcostError):
        return None


@lru_cache(maxsize=16)
def _read_identity(about: Path, _inode: int, _changed_ns: int) -> str | None:
    identity: str | None = Recording(about.parent).about.get("id")
    return identity
