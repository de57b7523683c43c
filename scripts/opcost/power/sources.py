"""The devices of this machine whose power can be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opcost.energy.meter import Meter, MeterUnavailable
from opcost.energy.meters import every_meter, open_meter, unseen
from opcost.energy.sensor import Sensor
from opcost.errors import OpcostError, closest


@dataclass(frozen=True)
class Source:
    """An open meter, and the name of its device: `cuda:0`, `cpu` as in targets; `cpu:psys`."""

    name: str
    meter: Meter

    @property
    def sensor(self) -> Sensor:
        """The properties of the sensor, as assumed."""
        return self.meter.assumed


def open_sources(names: Sequence[str] | None) -> tuple[list[Source], dict[str, str]]:
    """The named devices, by default all that this process may see; and why others are not read.

    Raises OpcostError for a name that is not a device.
    """
    known, missing = every_meter()
    chosen = [*known, *missing] if names is None else list(dict.fromkeys(names))
    sources, reasons = [], {}
    for name in chosen:
        kind, identity = known.get(name, (name.partition(":")[0], None))
        if name not in known and kind not in missing:
            because = f": {reason}" if (reason := unseen(kind)) else ""
            raise OpcostError(
                f"{name!r} is no device of this machine{because}. {closest(name, known)}"
            )
        if name not in known:
            reasons[name] = missing[kind]
            continue
        try:
            sources.append(Source(name, open_meter(kind, identity)))
        except MeterUnavailable as unavailable:
            reasons[name] = str(unavailable)
    return sources, reasons


def described(sources: Sequence[Source]) -> list[Mapping[str, object]]:
    """The sources as JSON data."""
    return [
        {
            "name": each.name,
            "meter": each.meter.name,
            "reads_since_last": each.meter.reads_since_last,
            "shared_by_time": each.meter.shared_by_time,
            "overlap": each.meter.overlap,
            "sensor": vars(each.sensor),
        }
        for each in sources
    ]
