"""Metrics that a measured program writes beside its energy: loss, accuracy, items."""

import os
from pathlib import Path

from opcost.power.recording import ENVIRONMENT, Recording


def log(**values: float) -> bool:
    """Write values into the recording that this program runs in, such as `log(loss=0.3)`.

    Returns whether there is one: without, as when the program runs without `opcost measure`,
    nothing happens.
    """
    recording = recording_around()
    if recording is None:
        return False
    recording.note({"metrics": {name: float(each) for name, each in values.items()}})
    return True


def recording_around() -> Recording | None:
    """The recording that this program runs in, if any."""
    folder = os.environ.get(ENVIRONMENT)
    return Recording(Path(folder)) if folder and Path(folder).is_dir() else None
