"""Metrics that a measured program writes beside its energy: loss, accuracy, items."""

import os
from pathlib import Path

from opcost.errors import OpcostError
from opcost.power.monitor import kept_recordings
from opcost.power.recording import ENVIRONMENT, Recording


def log(**values: float) -> bool:
    """Write values into the recording that this program runs in, such as `log(loss=0.3)`, and into
    those that its own monitors keep.

    Returns whether there is one: without, as when the program runs without `opcost measure`,
    nothing happens. Raises OpcostError for what is no number.
    """
    numbers = {}
    for name, each in values.items():
        try:
            numbers[name] = float(each)
        except (TypeError, ValueError) as error:
            raise OpcostError(f"log: {name} is {each!r}: give numbers") from error
    around = recording_around()
    recordings = [*([around] if around else []), *kept_recordings()]
    for recording in recordings:
        recording.note({"metrics": numbers})
    return bool(recordings)


def recording_around() -> Recording | None:
    """The recording that this program runs in, if any."""
    folder = os.environ.get(ENVIRONMENT)
    return Recording(Path(folder)) if folder and Path(folder).is_dir() else None
