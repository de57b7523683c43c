"""The windows of a recording as a table, and what there is to say about them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opcost.power.window_text import gain_notes
from opcost.rows.flags import explained
from opcost.rows.quantities import ENERGY
from opcost.text import joules, names_by_text, seconds, some, table, wrapped

_NOTHING = "-"
_DIGITS = 3
_NAMED = 3
_NUMBER = re.compile(r"\d[\d.]*(e-?\d+)?")

Row = Mapping[str, Any]


def window_lines(rows: Sequence[Row]) -> list[str]:
    """The rows as a table, with the reasons of energies that are missing, and the flags, below."""
    if not rows:
        return []
    devices = _names(row["devices"] for row in rows)
    metrics = _names(row["metrics"] for row in rows)
    labels = _names(row["labels"] for row in rows)
    segment = ["segment"] if len({row["segment"] for row in rows}) > 1 else []
    windows = ["windows"] if any(row.get("windows", 1) > 1 for row in rows) else []
    header = [*segment, *labels, "window", *windows, "time", *devices, *metrics]
    cells = [
        [
            *(str(row[name]) for name in segment),
            *(row["labels"].get(name, _NOTHING) for name in labels),
            row["window"],
            *(str(row[name]) for name in windows),
            seconds(row["time_s"]),
            *(_energy(row["devices"].get(name)) for name in devices),
            *(_figure(row["metrics"].get(name)) for name in metrics),
        ]
        for row in rows
    ]
    lines = table(header, cells, len(segment) + len(labels) + 1)
    notes = wrapped(_notes(rows))
    return [*lines, "", *notes] if notes else lines


def _names(of_rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for each in of_rows for name in each))


def _energy(found: Row | None) -> str:
    return _NOTHING if found is None else ENERGY.shown(found)


def _figure(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.4g}"


def _notes(rows: Sequence[Row]) -> Iterable[str]:
    used = [(row, name, each) for row in rows for name, each in row["devices"].items()]
    yield from _without_energy(rows)
    for row, name, each in used:
        if (partly := each.get("windows_with_energy")) is not None:
            yield (
                f"{name}: the {partly['windows']} of {row['windows']} windows {row['window']!r} "
                f"that have an energy used {ENERGY.shown(partly)} in {seconds(partly['time_s'])}."
            )
    flagged = [
        (f"{name}: flagged {flag} ({explained(flag)})", row["window"])
        for row, name, each in used
        for flag in each.get("flags", [])
    ]
    for text, windows in names_by_text(flagged).items():
        yield f"{text} in {_which(windows, rows)}."
    yield from gain_notes(
        each.get("gain_uncertainty") for _, _, each in used if each["energy_j"] is not None
    )


def _without_energy(rows: Sequence[Row]) -> Iterable[str]:
    """A sentence for each device and reason. Reasons that differ in numbers only are one."""
    alike: dict[tuple[str, str], list[tuple[str, Row]]] = {}
    for row in rows:
        for name, each in row["devices"].items():
            if reason := each.get("reason"):
                kind = name, _NUMBER.sub("", reason)
                alike.setdefault(kind, []).append((row["window"], each))
    for (name, _), found in alike.items():
        which = _which([window for window, _ in found], rows)
        reasons = {each["reason"] for _, each in found}
        first = found[0][1]
        limit_j = first.get("at_most_j") if len(found) == 1 else None
        most = "" if limit_j is None else f"; at most {joules(limit_j, _DIGITS)}"
        of_first = "" if len(reasons) == 1 else " the first of them:"
        yield f"{name}: no energy in {which}:{of_first} {first['reason']}{most}."


def _which(windows: Sequence[str], rows: Sequence[Row]) -> str:
    """The windows by name; those of the same name are counted."""
    if len(windows) == len(rows):
        return "any window" if len(rows) > 1 else repr(windows[0])
    times = {name: windows.count(name) for name in dict.fromkeys(windows)}
    names = [repr(name) if n == 1 else f"{n} windows {name!r}" for name, n in times.items()]
    return some(names, _NAMED)
