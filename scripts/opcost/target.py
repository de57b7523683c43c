"""Targets: a device and the settings under which it is measured.

A setting is declared only here: its allowed values in a configuration, the kind of device that has
it, its column, and the function that sets it in a measuring process.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

_KEY = "setting"


@dataclass(frozen=True)
class Setting:
    """A setting of a target: the JSON `schema` of its values in a configuration.

    `kind` is the kind of device that has it, None for any. `column` describes its column in rows,
    None for no column. `set_by`, as module:function, sets its value, including None, in a process
    that measures on any kind of device, before the device is opened.
    """

    schema: Mapping[str, Any]
    kind: str | None = None
    column: str | None = None
    set_by: str | None = None

    @property
    def type(self) -> str:
        """The JSON type of its values, without null."""
        types = self.schema["type"]
        return types if isinstance(types, str) else types[0]


def _setting(
    description: str, schema: Mapping[str, Any], *, default: Any = MISSING, **properties: str
) -> Any:
    """A field, whose `default`, if given, a target's JSON omits.

    The default in a configuration is that of the schema, or else of the field.
    """
    if default is None:
        schema = {**schema, "type": [schema["type"], "null"]}
    if default is not MISSING:
        schema = {**schema, "default": default}
    setting = Setting({"description": description, **schema}, **properties)
    return field(default=default, metadata={_KEY: setting})


def _whole(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


_UP_TO_100_000 = _whole(1, 100_000)
_YES_OR_NO = {"type": "boolean"}


def _part(label: str, unit: str, column: str) -> Any:
    """A part of an operating point, with the column of rows that reports it."""
    return field(default=None, metadata={"label": label, "unit": unit, "column": column})


@dataclass(frozen=True)
class OperatingPoint:
    """Settings of a device, in watts and megahertz; None leaves them unchanged."""

    power_limit_w: float | None = _part("power limit", "W", "power_limit_w")
    sm_clock_mhz: int | None = _part("multiprocessors at", "MHz", "sm_clock_target_mhz")
    memory_clock_mhz: int | None = _part("memory at", "MHz", "memory_clock_target_mhz")
    max_frequency_mhz: int | None = _part("cores at most", "MHz", "max_frequency_mhz")

    def __bool__(self) -> bool:
        """Whether anything is set."""
        return any(value is not None for value in asdict(self).values())

    def __str__(self) -> str:
        return ", ".join(
            f"{each.metadata['label']} {value:g} {each.metadata['unit']}"
            for each in fields(self)
            if (value := getattr(self, each.name)) is not None
        )


POINT_COLUMNS = frozenset(each.metadata["column"] for each in fields(OperatingPoint))
"""The columns that report the operating point of a device."""


@dataclass(frozen=True)
class Target:
    """A device and its settings. A new setting comes last, and is optional."""

    device: str = _setting(
        "auto (the first CUDA device if there is one, else the CPU), cpu, cuda, or cuda:N.",
        {"type": "string", "pattern": "^(auto|cpu|cuda(:[0-9]+)?)$"},
    )
    threads: int = _setting(
        "Number of PyTorch threads on the CPU; at most the number of cores.",
        _whole(1, 4096) | {"default": 1},
        column="number of PyTorch threads on the processor",
    )
    tf32: bool = _setting(
        "Whether CUDA matrix products and convolutions may use TensorFloat-32.",
        _YES_OR_NO | {"default": False},
        column="whether TF32 was allowed",
    )
    any_of_kind: bool = _setting(
        "Whether the target accepts any GPU of the same product name, as on a cluster, instead of "
        "only the one that was measured first.",
        _YES_OR_NO,
        default=False,
    )
    power_limit_w: int | None = _setting(
        "Power limit in watts that is set on the GPU while it is measured, and restored "
        "afterwards; needs root. null leaves it as it is.",
        _UP_TO_100_000,
        default=None,
        kind="cuda",
    )
    sm_clock_mhz: int | None = _setting(
        "Clock in MHz at which the GPU's multiprocessors are locked while it is measured, and "
        "released afterwards; needs root. null leaves it as it is.",
        _UP_TO_100_000,
        default=None,
        kind="cuda",
    )
    memory_clock_mhz: int | None = _setting(
        "Clock in MHz at which the GPU's memory is locked while it is measured, and released "
        "afterwards; needs root. null leaves it as it is.",
        _UP_TO_100_000,
        default=None,
        kind="cuda",
    )
    max_frequency_mhz: int | None = _setting(
        "Highest frequency in MHz that Linux allows the cores while the processor is measured, "
        "restored afterwards; needs root. null leaves it as it is.",
        _UP_TO_100_000,
        default=None,
        kind="cpu",
    )
    numa_node: int | None = _setting(
        "NUMA node on which memory lies while a processor is measured. null leaves that to Linux.",
        _whole(0, 1023),
        default=None,
        kind="cpu",
        column="NUMA node on which the memory lies; null if that was left to the system",
        set_by="opcost.devices.memory_placement:bind_memory",
    )
    huge_pages: bool | None = _setting(
        "Whether memory lies in huge pages while a processor is measured. null leaves that to "
        "Linux.",
        _YES_OR_NO,
        default=None,
        kind="cpu",
        column="whether the memory lies in huge pages; null if that was left to the system",
        set_by="opcost.devices.memory_placement:use_huge_pages",
    )
    cudnn_benchmark: bool = _setting(
        "Whether cuDNN tries its algorithms for each convolution of new sizes, before it is timed, "
        "and uses the fastest (torch.backends.cudnn.benchmark).",
        _YES_OR_NO,
        default=False,
    )

    @property
    def operating_point(self) -> OperatingPoint:
        """The settings of the device while it is measured; the others are per process."""
        names = [each.name for each in fields(OperatingPoint)]
        return OperatingPoint(**{name: getattr(self, name) for name in names})

    def to_json(self) -> str:
        """The settings as one line of JSON, without defaults."""
        return json.dumps(stated(self), sort_keys=True)


def stated(settings: Any) -> dict[str, Any]:
    """The values of a dataclass's fields, without defaults."""
    values = asdict(settings)
    return {
        each.name: values[each.name]
        for each in fields(settings)
        if each.default is MISSING or values[each.name] != each.default
    }


SETTINGS: dict[str, Setting] = {each.name: each.metadata[_KEY] for each in fields(Target)}
"""The settings of a target, by name."""

POINT = tuple(name for name, setting in SETTINGS.items() if setting.kind)
"""The settings that only one kind of device has: its operating point, and where its memory is."""


def point_of(kind: str) -> tuple[str, ...]:
    """The names of the settings that only devices of this kind have."""
    return tuple(name for name in POINT if SETTINGS[name].kind == kind)
