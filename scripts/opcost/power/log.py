"""Metrics that a measured program writes beside its energy: loss, accuracy, items."""

from opcost.errors import OpcostError
from opcost.power.monitor import kept_recordings
from opcost.power.recording import around


def log(**values: float) -> bool:
    """Write values such as `log(loss=0.3)` into the recordings that this program runs in, and into
    those of its own monitors. They belong to the windows that are open.

    Returns whether there is a recording; without `opcost measure`, nothing is written. Raises
    OpcostError for a value that is not a number, with or without a recording.
    """
    numbers = {}
    for name, each in values.items():
        if not name.isprintable():
            raise OpcostError(f"log: the name {name!r} cannot be printed: give text of one line")
        try:
            # A tensor that autograd records would warn.
            numbers[name] = float(each.detach() if hasattr(each, "detach") else each)
        except (TypeError, ValueError, OverflowError) as error:
            raise OpcostError(f"log: {name} is {each!r}: give numbers") from error
    recordings = [*around(), *kept_recordings()]
    for recording in recordings:
        recording.note({"metrics": numbers})
    return bool(recordings)
