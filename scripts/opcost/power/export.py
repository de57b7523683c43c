"""Conversion of a recording to a table for other programs: Parquet or CSV."""

import glob
import importlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from opcost.errors import OpcostError
from opcost.files import opened, replacing
from opcost.power.recorded_windows import (
    events_with_energy,
    most_by_name,
    with_defaults,
    without_defaults,
)
from opcost.power.recording import FIELDS, VERSION, Recording, claim, is_event

_ROWS = 100_000
"""Samples in memory at a time."""

_METADATA = b"opcost"
SUFFIXES = (".parquet", ".csv")
_FOLDER = ".recording"
_APPEND = "--append, in Python append=True"

SCHEMA = pa.schema(
    [
        ("segment", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("time_s", pa.float64()),
        ("device", pa.dictionary(pa.int8(), pa.string())),
        *((name, pa.float64()) for name in FIELDS[2:]),
    ]
)
"""A row for each reading of a device: `time_s` is of the monotonic clock, `segment` counts the
parts of a continued recording."""


def recording_beside(output: Path) -> Path:
    """The folder of the recording that becomes the table `output`."""
    return output.with_name(f"{output.name}{_FOLDER}")


def _output_of(folder: Path) -> Path | None:
    """The table that the recording in a folder becomes, or None for another folder."""
    name = folder.name.removesuffix(_FOLDER)
    return None if name in ("", folder.name) else folder.with_name(name)


def prepare_table(output: Path, append: bool) -> None:
    """Make sure that a new recording can become a table at `output`, or be appended to it.

    Data left by a killed measurement becomes a segment of it. Raises OpcostError for a file that
    cannot be written or continued.
    """
    importlib.import_module("pandas")  # pyarrow imports it when writing: too late at exit
    _check_table(output, append)
    _finish_earlier(output)
    # The data left may just have become a .csv file, which cannot be continued.
    _check_table(output, append or output.suffix == ".parquet")


def _check_table(output: Path, append: bool) -> None:
    """Raise OpcostError unless `output` can become the table of a recording."""
    if not output.name.isprintable():
        raise OpcostError(f"{output.name!r}: give the output a name that can be printed")
    if output.suffix not in SUFFIXES:
        raise OpcostError(f"{output}: name a file that ends with {' or '.join(SUFFIXES)}")
    if output.exists() and not append:
        raise OpcostError(f"{output} exists: continue it ({_APPEND}), or name another file")
    if append and output.suffix != ".parquet":
        raise OpcostError(f"{output}: a recording is continued in a .parquet file only")
    if append and output.exists():
        segments(output)


def unfinished(output: Path) -> str | None:
    """A message about a recording beside `output` that is not part of it, if there is one."""
    folder = recording_beside(output)
    if not (folder / "about.json").is_file():
        return None
    if Recording(folder).is_written:
        return f"a measurement is writing {folder}, and makes a segment of it at its end"
    return (
        f"a measurement that was killed left {folder}; `opcost measure --output {output} --append "
        "-- true` makes a segment of its readings, and of the windows that had ended"
    )


def _finish_earlier(output: Path) -> None:
    """Turn the data that a killed measurement left beside `output` into a segment of it.

    Raises OpcostError for a folder that is not a recording.
    """
    folder = recording_beside(output)
    if not folder.exists():
        return
    something_else = OpcostError(
        f"{folder} is where the readings of {output} are kept meanwhile, and is something else: "
        "move it away, or name another output"
    )
    if not folder.is_dir():
        raise something_else
    claimed = claim(folder)  # its content may be incomplete while another process holds it
    try:
        if (folder / "about.json").is_file():
            if Recording(folder).is_written:
                raise OpcostError(
                    f"another measurement is writing to {output}: wait for its end, or name "
                    "another output"
                )
            finish(output)
        elif any(folder.iterdir()):
            raise something_else
        else:
            folder.rmdir()  # killed before it began
    finally:
        os.close(claimed)


def finish(output: Path) -> int:
    """Turn the recording beside `output` into a segment of it. Returns the number of samples.

    Raises OpcostError, and leaves the recording, if there is another file at `output` by now.
    """
    folder = recording_beside(output)
    recording = Recording(folder)
    recording.check()
    about = recording.about
    if output.suffix == ".parquet":  # .csv files contain readings only
        about |= {"events": events_with_energy(recording), "most_by_name": most_by_name(recording)}
    for left in output.parent.glob(f".{glob.escape(output.name)}.*.tmp"):  # killed while writing
        left.unlink(missing_ok=True)
    known = _segments_before(output, folder)
    if not any(each.get("id") == about["id"] for each in known):  # killed after writing
        _write(recording, output, [*known, about])
    written = recording.size
    shutil.rmtree(folder)
    return written


def _segments_before(output: Path, folder: Path) -> list[dict[str, Any]]:
    if not output.exists():
        return []
    try:
        return segments(output)
    except OpcostError as error:
        raise OpcostError(
            f"{error}. It was written meanwhile; the readings stay in {folder}: move {output} "
            f"away, and measure again to continue them ({_APPEND})"
        ) from error


def _write(recording: Recording, output: Path, known: list[dict[str, Any]]) -> None:
    earlier = pq.ParquetFile(output) if output.exists() else None
    with replacing(output) as temporary:
        is_parquet = output.suffix == ".parquet"
        open_writer = pq.ParquetWriter if is_parquet else pyarrow.csv.CSVWriter
        with open_writer(temporary, SCHEMA) as writer:
            for batch in earlier.iter_batches(_ROWS) if earlier else ():
                writer.write_table(pa.Table.from_batches([batch]).cast(SCHEMA))
            for part in _tables(recording, len(known)):
                writer.write_table(part)
            if isinstance(writer, pq.ParquetWriter):  # not in the schema, which stores it twice
                writer.add_key_value_metadata({_METADATA: _described(known)})
        if is_parquet:
            _check_readable(temporary, output, recording.folder, len(known[-1]["events"]))


def _described(known: Sequence[Mapping[str, Any]]) -> str:
    """The metadata of segments as JSON."""
    short = [
        {**segment, "events": [without_defaults(event) for event in segment.get("events", [])]}
        for segment in known
    ]
    return json.dumps(short, separators=(",", ":"))


def _check_readable(written: Path, output: Path, folder: Path, events: int) -> None:
    """Raise OpcostError if a table cannot be read back, before its recording is deleted."""
    try:
        pq.ParquetFile(written)
    except OSError as error:
        raise OpcostError(
            f"{output} would be unreadable, with {events} windows and figures: a file holds about "
            f"300,000 windows of one device. The readings stay in {folder}; a .csv file has them "
            "without windows"
        ) from error


def segments(path: Path) -> list[dict[str, Any]]:
    """The metadata of each segment of a Parquet file: sources, labels, windows, metrics.

    Raises OpcostError for another file.
    """
    if path.is_dir():
        of = _output_of(path)
        remedy = (of and unfinished(of)) or "give the .parquet file of opcost measure --output"
        raise OpcostError(f"{path} is a folder: {remedy}")
    left = unfinished(path)
    if left and not path.exists():
        raise OpcostError(f"{path} does not exist: {left}")
    opened(path).close()
    if path.suffix == ".csv":
        raise OpcostError(
            f"{path} has readings alone: windows, labels and figures are in the .parquet file of "
            "an --output"
        )
    try:
        return _metadata(pq.ParquetFile(path))
    except (OSError, ValueError, TypeError) as error:
        raise OpcostError(
            f"{path} is not a recording of opcost measure ({error}): give the .parquet file of its "
            "--output"
        ) from error


def _metadata(file: pq.ParquetFile) -> list[dict[str, Any]]:
    known = (file.metadata.metadata or {}).get(_METADATA)
    if known is None:
        raise TypeError("another program wrote it")
    found: list[dict[str, Any]] = json.loads(known)
    if not isinstance(found, list) or not found or not all(map(_is_segment, found)):
        raise TypeError("its description is damaged")
    versions = {segment.get("version", VERSION) for segment in found}
    if later := [each for each in versions if each > VERSION]:
        raise ValueError(f"it is of version {later[0]}, this opcost reads {VERSION}")
    return [
        {**segment, "events": [with_defaults(event) for event in segment.get("events", [])]}
        for segment in found
    ]


def _is_segment(document: Any) -> bool:
    if not isinstance(document, dict):
        return False
    parts = [document.get(name, []) for name in ("events", "sources")]
    return all(isinstance(part, list) for part in parts) and all(map(is_event, parts[0]))


def _tables(recording: Recording, segment: int) -> Iterator[pa.Table]:
    about, first = recording.about, 0
    names = pa.array([source["name"] for source in about["sources"]], pa.string())
    wall_s = about["unix_s"] - about["monotonic_s"]
    while len(samples := recording.samples(first, _ROWS)):
        first += len(samples)
        times_us = ((samples["time_s"] + wall_s) * 1e6).astype("int64")
        device = pa.DictionaryArray.from_arrays(samples["source"].astype("int8"), names)
        columns = [
            pa.array(np.full(len(samples), segment)),
            pa.array(times_us, pa.timestamp("us", "UTC")),
            pa.array(samples["time_s"]),
            device,
            *(
                pa.array(samples[name].astype("f8"), from_pandas=True)  # NaN is null
                for name in FIELDS[2:]
            ),
        ]
        yield pa.Table.from_arrays(columns, schema=SCHEMA)
