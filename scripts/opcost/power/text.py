"""The energy of windows as text and as JSON data."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from opcost.groups import grouped
from opcost.power.attribution import MEMORY
from opcost.power.energy import DeviceEnergy, total
from opcost.rows.flags import explained
from opcost.rows.quantities import TIME
from opcost.statistics import Estimate
from opcost.text import (
    joules,
    margin,
    seconds,
    some,
    table,
    with_interval,
    wrapped,
)

Devices = Mapping[str, DeviceEnergy]
Row = Mapping[str, Any]

_NOTHING = "-"
_UNREAD = {
    "processor_use_percent": "the window is shorter than 0.2 s, or its recording ended early",
    "processor_temperature_c": "Linux shows no temperature of the processor (virtual machines "
    "hide it)",
    "memory_bytes": "no program is measured, it ran for less than a second, or its recording ended "
    "early",
}
_NOT_SAID = "the driver does not report it"
_DIGITS = 3
_NAMED = 3
_NUMBER = re.compile(r"\d[\d.]*(e-?\d+)?")


def as_text(name: str, time: Estimate, devices: Devices) -> list[str]:
    """A table of the devices, with notes; with energy above idle, if idle power is known."""
    idle = any(each.idle_power for each in devices.values())
    cells = [
        [
            device,
            with_interval(each.energy, joules),
            *([with_interval(each.above_idle, joules)] if idle else []),
            _watts(each.mean_power_w),
            str(each.changes),
        ]
        for device, each in devices.items()
    ]
    above = ["above idle"] if idle else []
    lines = table(["device", "energy", *above, "mean power", "changes"], cells)
    return [f"{name}: {with_interval(time, seconds)}", "", *lines, *_notes([(name, devices)])]


def as_line(name: str, time_s: float, devices: Devices) -> str:
    """Energy and power of the devices with a meter in one line, without the common notes."""
    used = [_short(device, each) for device, each in devices.items() if each.time_s]
    return f"{name}: {seconds(time_s)}, {', '.join(used) or 'no energy'}"


def _short(device: str, each: DeviceEnergy) -> str:
    flags = f" [{', '.join(each.flags)}]" if each.flags else ""
    if each.energy is None:
        return f"{device} no energy{flags}"
    energy = with_interval(each.energy, joules)
    return f"{device} {energy} ({_watts(each.mean_power_w)}){flags}"


def as_tick(now: Devices, so_far: Devices) -> str:
    """Time of day, and the present power and the energy so far of each device with a meter."""
    parts = [
        f"{name} {_watts(now[name].mean_power_w)}, {with_interval(each.energy, joules)}"
        for name, each in so_far.items()
        if each.time_s
    ]
    return "  ".join([f"{datetime.now():%H:%M:%S}", *parts])


def as_document(
    name: str,
    time: Estimate,
    runs: int,
    devices: Devices,
    all_of: Devices | None = None,
    machine: Sequence[Mapping[str, float | None]] = (),
) -> dict[str, Any]:
    """A window as JSON data, in joules, watts and seconds; `all_of` is the total, if requested,
    and `machine` has that of each run.
    """
    return {
        "name": name,
        **TIME.columns(time),
        "runs": runs,
        "devices": {
            device: {
                **each.columns,
                "overlap": each.overlap,
                "attributed_share": each.share,
                "attributed_by": each.by if each.share is not None else None,
                "attributed_reason": each.share_reason,
            }
            for device, each in devices.items()
        },
        "total": {of: each.columns for of, each in all_of.items()} if all_of else None,
        "machine": [machine_document(each) for each in machine],
    }


def machine_document(machine: Mapping[str, float | None]) -> dict[str, Any]:
    """The state of the machine as JSON data, with the reasons of what is null."""
    unknown = [name for name, value in machine.items() if value is None]
    return {**machine, "reasons": {name: _UNREAD.get(name, _NOT_SAID) for name in unknown}}


def _watts(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.1f} W"


def rows_by_name(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A row for all windows of the same name and recording: their number, total time and energy,
    and the last value of each metric.
    """
    together = grouped(((row["recording"], row["window"]), row) for row in rows)
    return [_together(same) for same in together.values()]


def _together(same: Sequence[Row]) -> dict[str, Any]:
    devices = {name: total([row["devices"][name] for row in same]) for name in same[0]["devices"]}
    times_s = [row["time_s"] for row in same if row["time_s"] is not None]
    if any(later["start_s"] < (earlier["end_s"] or 0) for earlier, later in pairwise(same)):
        why = "the windows overlap: a sum would count energy twice"
        devices = {n: replace(each, energy=None, reason=why) for n, each in devices.items()}
    return {
        **{name: same[0][name] for name in ("recording", "labels", "window")},
        "windows": len(same),
        "time_s": sum(times_s) if times_s else None,
        "devices": devices,
        "metrics": {name: value for row in same for name, value in row["metrics"].items()},
    }


def window_lines(rows: Sequence[Row]) -> list[str]:
    """The rows as a table, followed by the reasons of missing energies, and by flags."""
    if not rows:
        return ["There is no window in it."]
    several = len({row["recording"] for row in rows}) > 1
    counted = any(row.get("windows", 1) > 1 for row in rows)
    devices, metrics, labels = (
        list(dict.fromkeys(name for row in rows for name in row[part]))
        for part in ("devices", "metrics", "labels")
    )
    text = [*(["recording"] if several else []), *labels, "window"]
    header = [*text, *(["windows"] if counted else []), "time", *devices, *metrics]
    cells = [
        [
            *([row["recording"]] if several else []),
            *(row["labels"].get(name, _NOTHING) for name in labels),
            row["window"],
            *([str(row["windows"])] if counted else []),
            _NOTHING if row["time_s"] is None else seconds(row["time_s"]),
            *(_energy(row["devices"].get(name)) for name in devices),
            *(_figure(row["metrics"].get(name)) for name in metrics),
        ]
        for row in rows
    ]
    notes = _notes([(row["window"], row["devices"]) for row in rows])
    return [*table(header, cells, len(text)), *notes]


def _energy(found: DeviceEnergy | None) -> str:
    return with_interval(found.energy if found else None, joules)


def _figure(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.4g}"


def _notes(windows: Sequence[tuple[str, Devices]]) -> list[str]:
    """Lines about the windows, after an empty one, if there is something to say."""
    lines = wrapped(_sentences(windows))
    return ["", *lines] if lines else []


def _sentences(windows: Sequence[tuple[str, Devices]]) -> Iterable[str]:
    used = [(window, name, each) for window, all_of in windows for name, each in all_of.items()]
    alone = len(windows) == 1
    # Reasons that differ only in numbers are combined.
    alike: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for window, name, each in used:
        if each.reason is not None:
            key = ("", each.reason) if alone else (name, _NUMBER.sub("", each.reason))
            alike.setdefault(key, []).append((name, window, each.reason))
    for found in alike.values():
        names, named, texts = zip(*found, strict=True)
        where = "" if alone else f" in {_which(named, len(windows))}"
        where += ", in the first of them" if len(set(texts)) > 1 else ""
        yield f"{', '.join(dict.fromkeys(names))}: no energy{where}: {texts[0]}."
    for _, name, each in used:
        if each.energy is not None:
            yield from _qualified(name, each, each.energy)
    flagged = grouped(
        (f"{name}: flagged {flag} ({explained(flag)})", window)
        for window, name, each in used
        for flag in each.flags
    )
    for text, of in flagged.items():
        yield f"{text}." if alone else f"{text} in {_which(of, len(windows))}."
    gains = (each.gain_uncertainty for *_, each in used if each.energy is not None)
    for gain in sorted({each for each in gains if each}):
        yield f"The interval does not hold the error of the sensor's gain, about ±{margin(gain)}."


def _qualified(name: str, used: DeviceEnergy, energy: Estimate) -> Iterable[str]:
    """Which other meter includes an energy, and what part of it is attributed to a program."""
    if used.overlap is not None:
        yield f"{name} {used.overlap}."
    if used.share is not None:
        part_j = joules(used.share * energy.value, _DIGITS)
        yield (
            f"{name}: the program had {used.share:.0%} of its {used.by}; by that share, {part_j} "
            "are attributed to it, which is no measurement."
        )
    elif used.by == MEMORY:
        yield f"{name}: what part of it was the program's is unknown: {used.share_reason}."


def _which(names: Sequence[str], of: int) -> str:
    if len(names) == of:
        return "any window"
    return some([repr(name) for name in dict.fromkeys(names)], _NAMED)
