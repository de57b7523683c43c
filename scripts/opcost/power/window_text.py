"""The energy of a window as text."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import fmean
from typing import Any

from opcost.power.attribution import By
from opcost.power.device_energy import DeviceEnergy
from opcost.power.estimation import REPEAT
from opcost.rows.flags import explained
from opcost.rows.quantities import ENERGY, TIME
from opcost.statistics import Estimate, correlated_sum, mean
from opcost.text import joules, margin, seconds, table, with_interval, wrapped

_NOTHING = "-"
_DIGITS = 3
_IN_ONE_RUN = (
    "repeat it within a run (sh -c 'for i in $(seq 100); do ...; done'), and divide; --repeat "
    "measures each run by itself"
)


def as_text(name: str, time_s: float | Estimate, devices: Mapping[str, DeviceEnergy]) -> list[str]:
    """A table of the devices, with notes."""
    rows = [
        [
            device,
            with_interval(each.energy, joules),
            _watts(each.mean_power_w),
            _NOTHING if each.above_idle_j is None else joules(each.above_idle_j, _DIGITS),
            str(each.changes),
        ]
        for device, each in devices.items()
    ]
    header = ["device", "energy", "mean power", "above idle", "changes"]
    known = any(each.above_idle_j is not None for each in devices.values())
    if not known:
        header, rows = _without(3, header), [_without(3, row) for row in rows]
    time = with_interval(_estimate(time_s), seconds)
    return [f"{name}: {time}", "", *table(header, rows), "", *wrapped(_notes(devices))]


def as_line(name: str, time_s: float, devices: Mapping[str, DeviceEnergy]) -> str:
    """Energy and power of the devices with a meter in one line, without the common notes."""
    used = [_short(device, each) for device, each in devices.items() if each.time_s]
    return f"{name}: {seconds(time_s)}, {', '.join(used) or 'no energy'}"


def _short(device: str, each: DeviceEnergy) -> str:
    flags = f" [{', '.join(each.flags)}]" if each.flags else ""
    if each.energy is not None:
        energy = with_interval(each.energy, joules)
        return f"{device} {energy} ({_watts(each.mean_power_w)}){flags}"
    most = "" if each.at_most_j is None else f", at most {joules(each.at_most_j, _DIGITS)}"
    return f"{device} no energy{most}{flags}"


def as_tick(now: Mapping[str, DeviceEnergy], so_far: Mapping[str, DeviceEnergy]) -> str:
    """Time of day, and the present power and the energy so far of each device with a meter."""
    parts = [
        f"{name} {_watts(now[name].mean_power_w)}, {with_interval(each.energy, joules)}"
        for name, each in so_far.items()
        if each.time_s
    ]
    return "  ".join([f"{datetime.now():%H:%M:%S}", *parts])


def as_document(
    name: str, time_s: float | Estimate, runs: int, devices: Mapping[str, DeviceEnergy]
) -> dict[str, Any]:
    """A window as JSON data, in joules, watts and seconds."""
    return {
        "name": name,
        **TIME.columns(_estimate(time_s)),
        "runs": runs,
        "devices": {
            device: {
                **ENERGY.columns(each.energy),
                "reason": each.reason,
                "at_most_j": each.at_most_j,
                "mean_power_w": each.mean_power_w,
                "above_idle_j": each.above_idle_j,
                "above_idle_reason": each.above_idle_reason,
                "changes": each.changes,
                "gain_uncertainty": each.gain_uncertainty,
                "overlap": each.overlap,
                "attributed_share": each.share,
                "attributed_by": each.by if each.share is not None else None,
                "attributed_reason": each.share_reason,
                "flags": list(each.flags),
            }
            for device, each in devices.items()
        },
    }


def repeated(
    runs: Sequence[tuple[float, Mapping[str, DeviceEnergy]]],
) -> tuple[Estimate, dict[str, DeviceEnergy]]:
    """The mean time of several runs, with Student's interval, and the mean energy of each device;
    changes are counted over all runs.
    """
    time_s = mean([time_s for time_s, _ in runs])
    found = {}
    for device in runs[0][1]:
        every = [devices[device] for _, devices in runs]
        energies = [each.energy for each in every if each.energy is not None]
        limits_j = [each.at_most_j for each in every if each.at_most_j is not None]
        found[device] = replace(
            every[0],
            energy=_mean_energy(energies) if len(energies) == len(runs) else None,
            reason=_no_mean(every),
            time_s=time_s.value if any(each.time_s for each in every) else 0.0,
            changes=sum(each.changes for each in every),
            flags=tuple(dict.fromkeys(flag for each in every for flag in each.flags)),
            at_most_j=fmean(limits_j) if len(limits_j) == len(runs) else None,
            share=_mean_share(every),
        )
    return time_s, found


def _estimate(time_s: float | Estimate) -> Estimate:
    return time_s if isinstance(time_s, Estimate) else Estimate(time_s, None, None)


def _mean_energy(runs: Sequence[Estimate]) -> Estimate:
    """The mean, whose interval contains Student's interval over the runs and the mean of their own
    intervals: the errors at the edges of windows are correlated, as far as power rises and falls in
    the same way in all runs.
    """
    over_runs = mean([run.value for run in runs])
    within = correlated_sum((1 / len(runs), run) for run in runs)
    low = min(each.low for each in (over_runs, within) if each.low is not None)
    high = max(each.high for each in (over_runs, within) if each.high is not None)
    return Estimate(over_runs.value, low, high)


def _no_mean(every: Sequence[DeviceEnergy]) -> str | None:
    """Why several runs have no mean energy, or None if they have one."""
    reasons = [each.reason.replace(REPEAT, _IN_ONE_RUN) for each in every if each.reason]
    if not reasons:
        return None
    if len(reasons) == len(every) and len(set(reasons)) == 1:
        return reasons[0]
    return f"{len(reasons)} of {len(every)} runs have no energy; the first of them: {reasons[0]}"


def _mean_share(every: Sequence[DeviceEnergy]) -> float | None:
    """The share over all runs, weighted by energy or else time; None if one is unknown."""
    shares = [each.share for each in every if each.share is not None]
    if len(shares) < len(every):
        return None
    energies_j = [each.energy.value for each in every if each.energy is not None]
    weights = energies_j if len(energies_j) == len(every) else [each.time_s for each in every]
    return fmean(shares, weights)


def without_energy(reasons: Mapping[str, str]) -> Iterable[str]:
    """A sentence for each reason, with all devices to which it applies."""
    devices: dict[str, list[str]] = {}
    for device, reason in reasons.items():
        devices.setdefault(reason, []).append(device)
    for reason, names in devices.items():
        yield f"{', '.join(names)}: no energy: {reason}"


def _reason(found: DeviceEnergy) -> str:
    most = "" if found.at_most_j is None else f"; at most {joules(found.at_most_j, _DIGITS)}"
    return f"{found.reason}{most}."


def _notes(devices: Mapping[str, DeviceEnergy]) -> Iterable[str]:
    yield from without_energy(
        {device: _reason(each) for device, each in devices.items() if each.reason is not None}
    )
    for device, each in devices.items():
        if each.overlap is not None and each.energy is not None:
            yield f"{device} {each.overlap}."
        if each.share is not None and each.energy is not None:
            yield (
                f"{device}: the program had {each.share:.0%} of its {each.by}; by that share, "
                f"{joules(each.share * each.energy.value, _DIGITS)} are attributed to it, which is "
                "no measurement."
            )
        elif each.by == By.MEMORY and each.energy is not None:
            yield f"{device}: what part of it was the program's is unknown: {each.share_reason}."
        for flag in each.flags:
            yield f"{device}: flagged {flag} ({explained(flag)})."
    yield from gain_notes(
        each.gain_uncertainty for each in devices.values() if each.energy is not None
    )


def gain_notes(uncertainties: Iterable[float | None]) -> Iterable[str]:
    """A sentence for each gain uncertainty."""
    for gain in sorted({each for each in uncertainties if each}):
        yield f"The interval does not hold the error of the sensor's gain, about ±{margin(gain)}."


def _watts(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.1f} W"


def _without(place: int, cells: list[str]) -> list[str]:
    return [*cells[:place], *cells[place + 1 :]]
