"""The windows of a recording as a table with notes."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opcost.power.window_text import gain_notes
from opcost.rows.flags import explained
from opcost.rows.quantities import ENERGY
from opcost.text import joules, seconds, some, table, wrapped

_NOTHING = "-"
_DIGITS = 3
_NAMED = 3
_NUMBER = re.compile(r"\d[\d.]*(e-?\d+)?")

Row = Mapping[str, Any]


def window_lines(rows: Sequence[Row]) -> list[str]:
    """The rows as a table, followed by the reasons of missing energies, and by flags."""
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
    flagged: dict[str, list[Row]] = {}
    for row, name, each in used:
        for flag in each.get("flags", []):
            flagged.setdefault(f"{name}: flagged {flag} ({explained(flag)})", []).append(row)
    for text, flagged_rows in flagged.items():
        yield f"{text} in {_which(flagged_rows, rows)}."
    yield from gain_notes(
        each.get("gain_uncertainty") for _, _, each in used if each["energy_j"] is not None
    )


@dataclass(frozen=True)
class _Unknown:
    """Windows of a row without energy: how many of how many, and their common or first reason."""

    row: Row
    windows: int
    of: int
    reason: str
    of_all: bool
    most_j: float | None


def _without_energy(rows: Sequence[Row]) -> Iterable[str]:
    """A sentence for each device and reason. Reasons that differ only in numbers are combined."""
    alike: dict[tuple[str, str], list[_Unknown]] = {}
    for row in rows:
        for name, each in row["devices"].items():
            if each.get("reason"):
                unknown = _unknown(row, each)
                alike.setdefault((name, _NUMBER.sub("", unknown.reason)), []).append(unknown)
    for (name, _), found in alike.items():
        yield f"{name}: no energy in {_which([each.row for each in found], rows)}: {_why(found)}."


def _unknown(row: Row, used: Row) -> _Unknown:
    windows, reason = row.get("windows", 1), used["reason"]
    most_j = used.get("at_most_j")
    if (without := used.get("windows_without_energy")) is None:
        return _Unknown(row, windows, windows, reason, True, most_j)
    of_all = reason == without["reason"]
    return _Unknown(row, without["windows"], windows, without["reason"], of_all, most_j)


def _why(found: Sequence[_Unknown]) -> str:
    """The common reason, or the first one with the number of windows, and upper limits."""
    first, windows = found[0], sum(each.of for each in found)
    same = len({each.reason for each in found}) == 1 and all(each.of_all for each in found)
    most = _most(found)
    if same:
        return f"{first.reason}{most}"
    several = len({each.row["window"] for each in found}) > 1
    of = f" ({first.row['window']!r})" if several else ""
    counted = ""
    if windows > len(found):
        without = sum(each.windows for each in found)
        counted = f"{without} of {windows} windows have no energy; "
    return f"{counted}the first of them{of}: {first.reason}{most}"


def _most(found: Sequence[_Unknown]) -> str:
    """The upper limits of the rows by window name, without names of several rows."""
    in_all = " in all" if any(each.of > 1 for each in found) else ""
    if len(found) == 1:
        most_j = found[0].most_j
        return "" if most_j is None else f"; at most {joules(most_j, _DIGITS)}{in_all}"
    times = Counter(each.row["window"] for each in found)
    limits = [
        f"{joules(each.most_j, _DIGITS)} in {each.row['window']!r}"
        for each in found
        if each.most_j is not None and times[each.row["window"]] == 1
    ]
    return f"; at most{in_all}: {some(limits, _NAMED)}" if limits else ""


def _which(some_rows: Sequence[Row], rows: Sequence[Row]) -> str:
    """The windows by name; those of the same name are counted, unless they are all of them."""
    if len(some_rows) == len(rows):
        return "any window" if len(rows) > 1 else repr(rows[0]["window"])
    times = Counter(row["window"] for row in some_rows if "windows" not in row)
    names = dict.fromkeys(row["window"] for row in some_rows)
    return some(
        [repr(name) if times[name] < 2 else f"{times[name]} windows {name!r}" for name in names],
        _NAMED,
    )
