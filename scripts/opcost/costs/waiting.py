"""Sentences on how long a device waits for its host."""

from collections.abc import Iterable

from opcost.costs.terms import Row
from opcost.rows.quantities import HOST_TIME
from opcost.text import seconds

WAITING_TITLE = "How long the device waits for its host"
_NOTABLE = 0.005


def waiting(compared: Row) -> str | None:
    """The share of a model's time in which its device waits for the host; None on a processor."""
    share = compared["host_bound_share"]
    if share is None:
        return None
    host_s, device_s = compared[HOST_TIME.value], compared["operators_time_s"]
    measured_s = compared[HOST_TIME.of("end_to_end").value]
    estimated = " (estimated)"
    if measured_s is not None:
        estimated, host_s = f" (estimated: {seconds(host_s)})", measured_s
    needs = f"the host needs {seconds(host_s)} to launch its calls{estimated}, the device "
    needs += f"{seconds(device_s)} to run them"
    if share < _NOTABLE:
        return f"{compared['model']} does not wait for its host: {needs}"
    return f"{compared['model']} waits for its host {share:.0%} of the time: {needs}"


def waits_of(comparison: Iterable[Row]) -> list[str]:
    """The sentences of all models on devices whose host runs ahead."""
    return [text for row in comparison if (text := waiting(row)) is not None]
