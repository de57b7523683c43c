"""The windows of a recording with the energy of each device, and rows that combine windows."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opcost.power.device_energy import DeviceEnergy
from opcost.power.recording import Recording
from opcost.power.shown import Shown, around
from opcost.rows.quantities import ENERGY
from opcost.statistics import correlated_sum
from opcost.text import counted, some

WHOLE = "(whole recording)"
_NAMED = 3
_MOSTLY: dict[str, Any] = {
    **ENERGY.columns(None),
    "reason": None,
    "at_most_j": None,
    "mean_power_w": None,
    "changes": 0,
    "gain_uncertainty": None,
    "flags": [],
}
"""Default values of a device in a window, which are not written."""


def events_with_energy(recording: Recording) -> list[dict[str, Any]]:
    """The events of a recording; windows have `devices`: name -> joules with their interval, or the
    reason why there are none, and what qualifies them.

    A recording without windows gets one over its whole length. Beginnings are kept only of windows
    that have no end.
    """
    samples, about, lost = recording.mapped(), recording.about, recording.lost()
    times_s, sources = np.ascontiguousarray(samples["time_s"]), about["sources"]
    events = list(recording.events())
    if not any("window" in event for event in events):
        events += _whole(samples, sources, lost)
    windows = [event for event in events if "window" in event]
    edges_s = np.unique(
        [event[edge] for event in events for edge in ("start_s", "end_s") if edge in event]
    )
    together: dict[tuple[float, float], list[dict[str, Any]]] = {}
    for event in windows:
        span_s = around(event["start_s"], event["end_s"], about["period_s"])
        together.setdefault(span_s, []).append(event)
    for span_s, same in together.items():
        first, last = times_s.searchsorted(span_s)
        every = Shown.of_sources(samples[first:last], sources)
        for event in same:
            event["devices"] = {
                source["name"]: _kept(
                    shown.energy(
                        event["start_s"],
                        event["end_s"],
                        lost=lost.get(source["name"]),
                        edges_s=edges_s,
                    )
                )
                for source, shown in zip(sources, every, strict=True)
            }
    return _without_ended(events)


def _without_ended(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the beginnings of windows that have ended, or were abandoned."""
    begun = {(event["begun"], event["start_s"]): event for event in events if "begun" in event}
    others = [event for event in events if "begun" not in event]
    for event in others:
        begun.pop((event.get("window", event.get("abandoned")), event.get("start_s")), None)
    return [*(event for event in others if "abandoned" not in event), *begun.values()]


def _whole(
    samples: NDArray[np.void], sources: Sequence[Mapping[str, Any]], lost: Mapping[str, str]
) -> list[dict[str, Any]]:
    """A window of the time in which all devices, except lost ones, are known; none if there is no
    such time.
    """
    every = zip(sources, Shown.of_sources(samples, sources), strict=True)
    spans_s = {source["name"]: each.span_s for source, each in every if each.span_s is not None}
    spans_s = {name: span_s for name, span_s in spans_s.items() if name not in lost} or spans_s
    start_s = max((first_s for first_s, _ in spans_s.values()), default=0.0)
    end_s = min((last_s for _, last_s in spans_s.values()), default=0.0)
    if start_s >= end_s:
        return []
    return [{"time_s": end_s, "window": WHOLE, "start_s": start_s, "end_s": end_s}]


def not_ended(segments: Iterable[Mapping[str, Any]]) -> str | None:
    """A message about windows that began and did not end, if there are any: their program was
    killed, or closed its monitor.
    """
    names = [
        repr(event["begun"]) for each in segments for event in each["events"] if "begun" in event
    ]
    if not names:
        return None
    different = list(dict.fromkeys(names))
    return f"{counted(len(names), 'window')} began and did not end: {some(different, _NAMED)}"


def most_by_name(recording: Recording) -> dict[str, dict[str, float]]:
    """{name: {device: joules}}: upper limits of the energy from the start of the first window of a
    name to the end of the last one, for names of several windows.
    """
    spans: dict[str, tuple[float, float]] = {}
    several: set[str] = set()
    for event in recording.events():
        if name := event.get("window"):
            if name in spans:
                several.add(name)
            first_s, last_s = spans.get(name, (math.inf, -math.inf))
            spans[name] = min(first_s, event["start_s"]), max(last_s, event["end_s"])
    if not several:
        return {}
    sources = recording.about["sources"]
    every = Shown.of_sources(recording.mapped(), sources)
    found: dict[str, dict[str, float]] = {}
    for name in sorted(several):
        limits = {
            source["name"]: shown.limit_j(*spans[name])
            for source, shown in zip(sources, every, strict=True)
        }
        found[name] = {device: limit_j for device, limit_j in limits.items() if limit_j is not None}
    return found


def without_defaults(event: dict[str, Any]) -> dict[str, Any]:
    """An event as it is written: without default values of devices."""
    return _of_devices(
        event,
        lambda used: {name: x for name, x in used.items() if name not in _MOSTLY or x},
    )


def with_defaults(event: dict[str, Any]) -> dict[str, Any]:
    """An event with the default values that `without_defaults` removed."""
    return _of_devices(event, lambda used: {**_MOSTLY, **used})


def _of_devices(
    event: dict[str, Any], changed: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    if "devices" not in event:
        return event
    return {**event, "devices": {name: changed(used) for name, used in event["devices"].items()}}


def _kept(used: DeviceEnergy) -> dict[str, Any]:
    """The values of a device that differ between windows."""
    return {
        **ENERGY.columns(used.energy),
        "reason": used.reason,
        "at_most_j": used.at_most_j,
        "mean_power_w": used.mean_power_w,
        "changes": used.changes,
        "gain_uncertainty": used.gain_uncertainty,
        "flags": list(used.flags),
    }


def window_rows(segments: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each window of all segments, in order: its time, the energy of each device or the
    reason why it has none, and the last value of each metric that was logged in it.
    """
    rows = []
    for number, segment in enumerate(segments, 1):
        events = segment["events"]
        missing = {
            name: _kept(DeviceEnergy.without(reason))
            for name, reason in segment.get("missing", {}).items()
        }
        windows = sorted((each for each in events if "window" in each), key=lambda e: e["start_s"])
        logged = sorted((each for each in events if "metrics" in each), key=lambda e: e["time_s"])
        times_s = [each["time_s"] for each in logged]
        for each in windows:
            first, last = (
                bisect_left(times_s, each["start_s"]),
                bisect_right(times_s, each["end_s"]),
            )
            inside = [event["metrics"] for event in logged[first:last]]
            rows.append(
                {
                    "segment": number,
                    "labels": segment.get("labels", {}),
                    "window": each["window"],
                    "start_s": each["start_s"],
                    "end_s": each["end_s"],
                    "time_s": each["end_s"] - each["start_s"],
                    "devices": {**each.get("devices", {}), **missing},
                    "metrics": {name: x for found in inside for name, x in found.items()},
                }
            )
    return rows


def rows_by_name(segments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for all windows of the same name in a segment: their number, total time and energy, and
    the last value of each metric.
    """
    together: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for row in window_rows(segments):
        together.setdefault((row["segment"], row["window"]), []).append(row)
    return [
        _together(same, segments[segment - 1].get("most_by_name", {}).get(name, {}))
        for (segment, name), same in together.items()
    ]


def _together(same: Sequence[Mapping[str, Any]], most_j: Mapping[str, float]) -> dict[str, Any]:
    overlap = any(later["start_s"] < earlier["end_s"] for earlier, later in pairwise(same))
    return {
        "segment": same[0]["segment"],
        "labels": same[0]["labels"],
        "window": same[0]["window"],
        "windows": len(same),
        "time_s": sum(row["time_s"] for row in same),
        "devices": {
            name: _used_by_all(
                [(row["time_s"], row["devices"][name]) for row in same], overlap, most_j.get(name)
            )
            for name in same[0]["devices"]
        },
        "metrics": {name: value for row in same for name, value in row["metrics"].items()},
    }


def _used_by_all(
    used: Sequence[tuple[float, Mapping[str, Any]]], overlap: bool, most_j: float | None
) -> dict[str, Any]:
    """The energy of a device in several windows, each with its time, `most_j` at most.

    Windows of the same name usually begin and end at the same places of a program, where power
    rises and falls in the same way: their errors are correlated, so limits add up.
    """
    if len(used) == 1:
        return {**used[0][1], "windows_with_energy": None, "windows_without_energy": None}
    found = [(time_s, ENERGY.read(each)) for time_s, each in used]
    known = [(time_s, energy) for time_s, energy in found if energy is not None]
    total = correlated_sum((1.0, energy) for _, energy in known) if known else None
    time_s = sum(time_s for time_s, _ in known)
    reason = _no_total([each for _, each in used], overlap)
    limits_j: list[Any] = [each.get("at_most_j") for _, each in used]
    bounds_j = [most_j, None if None in limits_j else sum(limits_j)]
    without = [each["reason"] for _, each in used if each["energy_j"] is None]
    return {
        **ENERGY.columns(total if reason is None else None),
        "reason": reason,
        "at_most_j": min((each for each in bounds_j if each is not None), default=None),
        "mean_power_w": total.value / time_s if total and reason is None else None,
        "changes": sum(each.get("changes", 0) for _, each in used),
        "gain_uncertainty": used[0][1].get("gain_uncertainty"),
        "flags": list(dict.fromkeys(flag for _, each in used for flag in each.get("flags", []))),
        "windows_with_energy": {"windows": len(known), "time_s": time_s, **ENERGY.columns(total)}
        if reason is not None and not overlap and known
        else None,
        "windows_without_energy": {"windows": len(without), "reason": without[0]}
        if without
        else None,
    }


def _no_total(used: Sequence[Mapping[str, Any]], overlap: bool) -> str | None:
    """Why there is no total of several windows, or None if there is one."""
    reasons = [each["reason"] for each in used if each["energy_j"] is None]
    if len(reasons) == len(used) and len(set(reasons)) == 1:
        return str(reasons[0])
    if reasons:
        return (
            f"{len(reasons)} of {len(used)} windows have no energy; the first of them: {reasons[0]}"
        )
    return "the windows overlap: a sum would count energy twice" if overlap else None
