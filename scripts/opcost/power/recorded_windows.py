"""The windows of a recording, with the energy of each device in them."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from opcost.energy.sensor import Sensor
from opcost.power.device_energy import device_energy
from opcost.power.recording import Recording
from opcost.rows.quantities import ENERGY
from opcost.text import seconds, table

_BEFORE_S, _AFTER_S = 5.0, 2.0


def events_with_energy(recording: Recording) -> list[dict[str, Any]]:
    """The events of a recording; those of windows have `devices`: name -> joules with their
    interval, or the reason why there are none.
    """
    samples, sources = recording.mapped(), recording.about["sources"]
    times_s, lost = np.ascontiguousarray(samples["time_s"]), recording.lost()
    found = []
    for event in recording.events():
        if "window" not in event:
            found.append(event)
            continue
        start_s, end_s = event["start_s"], event["end_s"]
        first, last = times_s.searchsorted([start_s - _BEFORE_S, end_s + _AFTER_S])
        near = samples[first:last]
        devices = {}
        for number, source in enumerate(sources):
            used = device_energy(
                near[near["source"] == number],
                Sensor(**source["sensor"]),
                source["reads_since_last"],
                None,
                start_s,
                end_s,
                lost.get(source["name"]),
            )
            devices[source["name"]] = {**ENERGY.columns(used.energy), "reason": used.reason}
        found.append({**event, "devices": devices})
    return found


def window_rows(segments: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each window of all segments, in their order: its time, the energy of each device,
    and the last value of each metric that was logged in it.
    """
    rows = []
    for number, segment in enumerate(segments, 1):
        events = segment["events"]
        windows = sorted((each for each in events if "window" in each), key=lambda e: e["start_s"])
        for each in windows:
            metrics: dict[str, float] = {}
            for event in events:
                if each["start_s"] <= event["time_s"] <= each["end_s"]:
                    metrics |= event.get("metrics", {})
            rows.append(
                {
                    "segment": number,
                    "window": each["window"],
                    "time_s": each["end_s"] - each["start_s"],
                    "devices": each.get("devices", {}),
                    "metrics": metrics,
                }
            )
    return rows


def window_lines(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as a table."""
    if not rows:
        return []
    devices = list(dict.fromkeys(name for row in rows for name in row["devices"]))
    metrics = list(dict.fromkeys(name for row in rows for name in row["metrics"]))
    several = len({row["segment"] for row in rows}) > 1
    header = ["segment", "window", "time", *devices, *metrics][not several :]
    cells = [
        [
            str(row["segment"]),
            row["window"],
            seconds(row["time_s"]),
            *(_energy(row["devices"].get(name)) for name in devices),
            *(f"{row['metrics'][name]:.4g}" if name in row["metrics"] else "-" for name in metrics),
        ][not several :]
        for row in rows
    ]
    return table(header, cells, 2 if several else 1)


def _energy(found: Mapping[str, Any] | None) -> str:
    return "-" if found is None else ENERGY.shown(found)
