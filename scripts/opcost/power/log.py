"""Metrics that a measured program writes beside its energy: loss, accuracy, items."""

from opcost.errors import OpcostError
from opcost.power.monitor import kept_recordings
from opcost.power.recording import around


def log(**values: float) -> bool:
    """Write values into the recordings that this program runs in, such as `log(loss=0.3)`, and into
    those that its own monitors keep.

    To be called inside the window whose line should have them; windows around it have them, too.

    Returns whether there is one: without, as when the program runs without `opcost measure`,
    nothing is written. Raises OpcostError for what is no number, with or without a recording.
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
