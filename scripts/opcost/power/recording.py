"""A recording of power: the folder that a sampler writes, and the Parquet file that it becomes.

    run.parquet.recording/
        about.json      what is recorded: sources, period, clocks, labels
        samples         records of equal size
        events.jsonl    a line for each beginning and end of a window, and each figure
    run.parquet         a row for each sample; its metadata has a row for each window

An incomplete last record or line is ignored, so a recording is readable whenever it was killed.
"""

import fcntl
import json
import os
import shutil
import signal
import time
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from opcost.errors import OpcostError
from opcost.files import lines_of, opened, read_json, replacing, write_json
from opcost.power.energy import DeviceEnergy
from opcost.power.readings import WindowEnergies, machine_in

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
        ("own_memory_bytes", "f8"),
    ]
)
"""A reading of a source: NaN for values that it does not have, or that were not read this time."""

FIELDS = tuple(SAMPLE.fields or ())
STATE = FIELDS[4:-3]
"""Fields that describe the state of the device; they are read once a second, as is the use of the
device by the user and by all processes (attribution.py)."""

MACHINE = "machine"
"""The last source, which has no meter: processor time and temperature, memory (machine.py)."""

SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", "UTC")),
        ("time_s", pa.float64()),
        ("device", pa.dictionary(pa.int8(), pa.string())),
        *((name, pa.float64()) for name in FIELDS[2:]),
    ]
)
"""The rows of the Parquet file; `time_s` is of the monotonic clock."""

READ, END = signal.SIGUSR1, signal.SIGUSR2
"""What a sampler is told: to read all meters at once, and to end."""

VERSION, _READABLE = 3, (2, 3)
WHOLE, IDLE = "(whole recording)", "(idle)"
DID_NOT_END = "the window did not end: its program was killed, or closed its monitor"

_METADATA = b"opcost"
_FOLDER = ".recording"
_ROWS = 100_000
_POLL_S, _HANGS_S = 0.01, 10.0
_LONGEST = 2**31 - 1
"""The metadata of a file with many windows is larger than Arrow reads by default."""

_ENVIRONMENT = "OPCOST_RECORDINGS"
"""The environment variable with the folders of the recordings that a program runs in."""


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

    @property
    def is_begun(self) -> bool:
        """Whether the sampler has written the description."""
        return (self.folder / "about.json").is_file()

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write the description, with both clocks at this moment."""
        clocks = {"monotonic_s": time.monotonic(), "unix_s": time.time()}
        write_json(self.folder / "about.json", {"version": VERSION, **clocks, **about})

    @property
    def about(self) -> dict[str, Any]:
        """The description. Raises OpcostError for a damaged file, or one of another version."""
        path = self.folder / "about.json"
        found: dict[str, Any] = read_json(path, "it is not a recording of opcost")
        if found.get("version") != VERSION:
            raise OpcostError(
                f"{path} is of version {found.get('version')!r} of recordings, this opcost reads "
                f"{VERSION}: delete {self.folder}"
            )
        return found

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

    def samples(self) -> NDArray[np.void]:
        """All complete records, memory-mapped; none if there is no file."""
        with suppress(OpcostError), opened(self.samples_file) as file:
            if size := os.fstat(file.fileno()).st_size // SAMPLE.itemsize:
                return np.memmap(file, SAMPLE, "r", shape=(size,))
        return np.empty(0, SAMPLE)

    def note(self, event: Mapping[str, Any]) -> None:
        """Append an event. The program continues if it cannot be written, as on a full disk."""
        text = json.dumps({"time_s": time.monotonic(), **event}, default=str)
        line = f"\n{text}\n"  # starts a new line: a full disk may have cut the last one
        try:
            descriptor = os.open(self.events_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(descriptor, line.encode())  # one write: atomic between processes
            finally:
                os.close(descriptor)
        except OSError as error:
            warnings.warn(f"opcost: {self.events_file} cannot be written: {error}", stacklevel=2)

    def events(self) -> Iterator[dict[str, Any]]:
        """All complete events."""
        if not self.events_file.exists():
            return
        with lines_of(self.events_file, errors="replace") as lines:
            for line in lines:
                with suppress(json.JSONDecodeError):
                    if isinstance(event := json.loads(line), dict):
                        yield event

    def lost(self) -> dict[str, str]:
        """Device -> why its meter failed, for meters that did not recover."""
        lost: dict[str, str] = {}
        for each in self.events():
            if "lost" in each:
                lost[each["lost"]] = each["reason"]
            lost.pop(each.get("back", ""), None)
        return lost


def around() -> list[Recording]:
    """The recordings that this program runs in, begun by `opcost measure`."""
    folders = os.environ.get(_ENVIRONMENT, "").split(os.pathsep)
    found = [Recording(Path(folder)) for folder in folders if folder]
    return [each for each in found if each.is_begun]


def environment_in(recording: Recording) -> dict[str, str]:
    """The environment of a program that runs in a recording, and in those around this process."""
    folders = [*(each.folder for each in around()), recording.folder]
    return {_ENVIRONMENT: os.pathsep.join(map(str, folders))}


def recording_beside(output: Path) -> Recording:
    """The recording that becomes the file `output`."""
    return Recording(output.with_name(f"{output.name}{_FOLDER}"))


def new_recording(output: Path) -> Recording:
    """A new recording that will become the file `output`. What a killed measurement left there
    becomes its file first. Raises OpcostError for a file that exists or cannot be written.
    """
    if output.suffix != ".parquet" or not output.name.isprintable():
        raise OpcostError(f"{str(output)!r}: name a file that ends with .parquet")
    recording = recording_beside(output)
    if not output.exists():
        recover(output)
    if output.exists():
        raise OpcostError(f"{output} exists: name another file")
    try:
        recording.folder.mkdir(parents=True)
    except FileExistsError as error:
        raise OpcostError(
            f"{recording.folder} exists: another measurement is writing {output}, or something "
            "else is there: wait for its end, or name another output"
        ) from error
    return recording


def recover(output: Path) -> None:
    """Write the file of a recording that a killed measurement left, if there is one."""
    recording = recording_beside(output)
    if recording.is_begun and not recording.is_written:
        finish(recording, output)


def finish(recording: Recording, output: Path) -> int:
    """Turn a recording into its file, and delete the folder. Returns the number of samples.

    Raises OpcostError, and leaves the recording, if there is another file by now, or if the file
    cannot be written.
    """
    try:
        with open(recording.samples_file, "ab") as file:
            _lock(file)  # others take it for one that is written
            if recording.is_begun:
                return _finish(recording, output)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise OpcostError(
            f"{output} cannot be written ({error.strerror or error}); the readings stay in "
            f"{recording.folder}: free some space, or change the permissions there, and run opcost "
            f"windows {output}"
        ) from error
    opened(output).close()  # another process has finished it, or deleted it
    return int(pq.ParquetFile(output, thrift_string_size_limit=_LONGEST).metadata.num_rows)


def _lock(file: BinaryIO) -> None:
    """Lock a file, unless a sampler that hangs holds its lock."""
    latest_s = time.monotonic() + _HANGS_S
    while time.monotonic() < latest_s:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_POLL_S)


def _finish(recording: Recording, output: Path) -> int:
    if output.exists():
        raise OpcostError(
            f"{output} was written meanwhile; the readings stay in {recording.folder}: move "
            f"{output} away, and run opcost windows {output}"
        )
    about, samples = recording.about, recording.samples()
    if len(samples) and not samples["time_s"][-1] > 0:  # a power failure may leave zeros
        samples = samples[samples["time_s"] > 0]
    known = {**about, "windows": window_rows(recording, about, samples)}
    with replacing(output) as temporary, pq.ParquetWriter(temporary, SCHEMA) as writer:
        for first in range(0, len(samples), _ROWS):
            writer.write_table(_table(samples[first : first + _ROWS], about))
        # Not in the schema, which Arrow stores twice.
        writer.add_key_value_metadata({_METADATA: json.dumps(known, separators=(",", ":"))})
    shutil.rmtree(recording.folder)
    return len(samples)


def _table(samples: NDArray[np.void], about: Mapping[str, Any]) -> pa.Table:
    wall_s = about["unix_s"] - about["monotonic_s"]
    names = pa.array([*(each["name"] for each in about["sources"]), MACHINE], pa.string())
    columns = [
        pa.array(((samples["time_s"] + wall_s) * 1e6).astype("int64"), pa.timestamp("us", "UTC")),
        pa.array(samples["time_s"]),
        pa.DictionaryArray.from_arrays(samples["source"].astype("int8"), names),
        # NaN is null.
        *(pa.array(samples[name].astype("f8"), from_pandas=True) for name in FIELDS[2:]),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def window_rows(
    recording: Recording, about: Mapping[str, Any], samples: NDArray[np.void]
) -> list[dict[str, Any]]:
    """A row for each window: its name, time, the energy of each `devices` or the reason why it has
    none, the last value of each of the `metrics` that were logged in it, and its `machine`.

    A recording in which no window ended gets one over its whole length.
    """
    events, lost = list(recording.events()), recording.lost()
    ended = [event for event in events if "window" in event]
    known = {(event["window"], event["start_s"]) for event in ended}
    begun = [event for event in events if "begun" in event]
    begun = [event for event in begun if (event["begun"], event["start_s"]) not in known]
    energies, rows = WindowEnergies(about), []
    idle = {}
    for event in ended:
        if event["window"] == IDLE:
            idle = energies.of(samples, event["start_s"], event["end_s"], lambda: lost)
    nothing = all(event["window"] == IDLE for event in ended)
    if nothing and (span_s := energies.span_s(samples, lost)):
        ended = [*ended, {"window": WHOLE, "start_s": span_s[0], "end_s": span_s[1]}]
    logged = [event for event in events if "metrics" in event]
    times_s = [event["time_s"] for event in logged]
    for event in sorted(ended, key=lambda each: (each["start_s"], each["end_s"])):
        start_s, end_s = event["start_s"], event["end_s"]
        used = energies.of(samples, start_s, end_s, lambda: lost)
        found = {name: each.with_idle(idle.get(name)) for name, each in used.items()}
        inside = logged[bisect_left(times_s, start_s) : bisect_right(times_s, end_s)]
        metrics = {name: x for each in inside for name, x in each["metrics"].items()}
        row = _row(event["window"], start_s, end_s, found, metrics, about)
        rows.append({**row, "machine": machine_in(samples, about, start_s, end_s)})
    for event in begun:
        names = [source["name"] for source in about["sources"]]
        none = dict.fromkeys(names, DeviceEnergy(None, DID_NOT_END))
        rows.append(_row(event["begun"], event["start_s"], None, none, {}, about))
    return rows


def _row(
    name: str,
    start_s: float,
    end_s: float | None,
    found: Mapping[str, DeviceEnergy],
    metrics: Mapping[str, float],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    missing = {name: DeviceEnergy(None, reason) for name, reason in about["missing"].items()}
    return {
        "window": name,
        "start_s": start_s,
        "end_s": end_s,
        "time_s": None if end_s is None else end_s - start_s,
        "devices": {name: each.columns for name, each in {**found, **missing}.items()},
        "metrics": dict(metrics),
        "machine": {},
    }


def read_windows(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """A row for each window of the file of a recording: its `labels`, the name `window`, its time,
    the last value of each of the `metrics` that were logged in it, the DeviceEnergy of each of its
    `devices`, and the state of the `machine` as `Window.machine` has it. What a killed measurement
    left becomes the file first.

    Raises OpcostError for another file.
    """
    output = Path(path)
    if not output.exists():
        recover(output)
        if recording_beside(output).is_written:
            raise OpcostError(f"{output} is being written by a measurement: wait for its end")
    opened(output).close()
    try:
        metadata = pq.ParquetFile(output, thrift_string_size_limit=_LONGEST).metadata.metadata
        if _METADATA not in (metadata or {}):
            raise ValueError("another program wrote it")
        known = json.loads(metadata[_METADATA])
        if known["version"] not in _READABLE:
            raise ValueError(f"it is of version {known['version']}, this opcost reads {VERSION}")
        for row in known["windows"]:
            row.setdefault("machine", {})  # of version 2
            row["devices"] = {n: DeviceEnergy.read(each) for n, each in row["devices"].items()}
        return [{"labels": known["labels"], **row} for row in known["windows"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise OpcostError(
            f"{output} is not a recording of opcost measure ({error}): give the .parquet file of "
            "its --output"
        ) from error
