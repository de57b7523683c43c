"""The targets of a run: those of the study, or a device and a number of threads."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from opcost.target import SETTINGS

Settings = Mapping[str, Any]

AUTO: Mapping[str, Settings] = {"local": {"device": "auto"}}
"""The targets of a folder without a study."""


def chosen_targets(
    study: Mapping[str, Settings], device: str | None, threads: Sequence[int]
) -> dict[str, Settings]:
    """The targets of a run, by name: of the `study`, or `device` instead, each with these numbers
    of threads if any are given. A target of the study with the same settings keeps its name.
    """
    bases = study if device is None else {device.replace(":", "_"): {"device": device}}
    existing = dict(study)
    found = {}
    for base, settings in bases.items():
        for number in threads or (None,):
            wanted = settings if number is None else {**settings, "threads": number}
            wanted_name = base if number in (None, 1) and device else _named(base, number)
            name = _name(wanted_name, wanted, existing)
            found[name] = existing[name] = existing.get(name, wanted)
    return found


def _named(base: str, threads: int | None) -> str:
    if threads is None:
        return base
    base = base.partition("[")[0]  # a point of axes, perhaps of threads
    return f"{base}_{threads}_thread{'' if threads == 1 else 's'}"


def _name(wanted: str, settings: Settings, existing: Mapping[str, Settings]) -> str:
    """The name of an equal target, or an unused name."""
    same = [name for name, each in existing.items() if _stated(each) == _stated(settings)]
    if same:
        return wanted if wanted in same else same[0]
    candidates = (wanted if number == 1 else f"{wanted}_{number}" for number in count(1))
    return next(name for name in candidates if name not in existing)


def _stated(settings: Settings) -> dict[str, Any]:
    """The settings that affect results, with their defaults."""
    return {
        **{name: each.schema["default"] for name, each in SETTINGS.items() if name != "device"},
        **{key: value for key, value in settings.items() if key != "cluster"},
    }
