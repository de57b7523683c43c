"""Addresses of results: measurements with another address are made again, and earlier ones stay.

    conditions   a target's settings, except durations, and the environment: software, and on this
                 machine also the device, as far as known without opening it
    definition   a model
    extraction   its definition, PyTorch, and the form of the file
    study        the models, targets and settings of a study

An address is readable, and ends with 8 hex digits of a hash of its subject. Imports no torch:
Snakemake computes the addresses each time it starts.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from opcost.devices.device_file import changes_between, read_device
from opcost.devices.gpu_settings import gpu_state
from opcost.devices.kinds import kind_of, resolved
from opcost.devices.machine import hashed_uuid, installed_torch
from opcost.energy.meter import MeterUnavailable
from opcost.energy.meters import untouched_uuid
from opcost.errors import OpcostError
from opcost.files import read_json
from opcost.models.definition import ModelDefinition
from opcost.results_folder import (
    RESULTS,
    STUDIES,
    device_file,
    extraction,
    recording,
    settings_file,
    target_folder,
)
from opcost.rows.comparability import OF_ONE_DEVICE, meaning, settings_of
from opcost.study import Conditions, Study
from opcost.target import Target
from opcost.text import shortened
from opcost.tuples.tuple_record import SCHEMA_VERSION

DIGEST = "[0-9a-f]{8}"
"""The pattern of an address's last part."""

_LONGEST = 100

Software = Mapping[str, str | None]


@dataclass(frozen=True)
class Addresses:
    """The paths of a study's files.

    `software` is that of its jobs: the versions of PyTorch and its CUDA, or placeholders.
    `machine` is true if jobs run on this machine; jobs on a cluster verify the device.
    """

    study: Study
    results: Path = RESULTS
    software: Software = field(default_factory=installed_torch)
    machine: bool = True

    @cached_property
    def folders(self) -> dict[str, Path]:
        """Target -> the folder of its measurements."""
        return {
            target: target_folder(target, self._conditions(each), self.results)
            for target, each in self.study.conditions.items()
        }

    def device(self, target: str) -> str:
        """The device of a target, as far as known: `auto` on a cluster."""
        return self._device(self.study.conditions[target].target)

    def _device(self, settings: Target) -> str:
        return resolved(settings.device, self.software, _uuid) if self.machine else settings.device

    def is_recorded(self, target: str) -> bool:
        """Whether calls are traced on a target's device: not on a processor, where models run as in
        their extraction.
        """
        kind = kind_of(self.device(target))
        return kind is None or not kind.is_processor

    def definition(self, model: str) -> str:
        """The name of a model's end-to-end measurements."""
        return definition_address(self.study.models[model])

    def extraction(self, model: str) -> Path:
        """The file of a model's tuples and calls."""
        return extraction(self._extraction(model), self.results)

    def recording(self, target: str, model: str) -> Path:
        """The file of a model's tuples and calls on a target's device."""
        return recording(self.folders[target], self._extraction(model))

    def expected_calls(self, target: str, model: str) -> Path:
        """The file with the calls that a model is expected to make on a target."""
        return self.recording(target, model) if self.is_recorded(target) else self.extraction(model)

    def differences(self, target: str, former: Path) -> list[str]:
        """The known differences in settings and environment between a target and the conditions of
        another folder.
        """
        conditions = self.study.conditions[target]
        found: list[tuple[str, Any, Any]] = []
        with suppress(OpcostError):  # nothing is measured there
            before = settings_of(json.dumps(read_json(settings_file(former), "")))
            now = settings_of(conditions.to_json())
            found += [
                (name.rpartition(".")[2], *(each.get(name, "not set") for each in (before, now)))
                for name in sorted({*before, *now})
            ]
        with suppress(OpcostError):
            known = asdict(read_device(device_file(former)))
            settings = conditions.target
            found += changes_between(known, self._environment(settings), settings.any_of_kind)
        return [
            f"{name}: {shortened(f'{old} -> {new}', _LONGEST)}"
            for name, old, new in found
            if old != new
        ]

    @cached_property
    def name(self) -> str:
        """The name of the study."""
        study, models = self.study, list(self.study.models)
        asked = {
            "models": {model: self._extraction(model) for model in models},
            "targets": {target: folder.name for target, folder in self.folders.items()},
            "operators": study.operators,
            "launch_modes": study.launch_modes,
            "generations": list(map(asdict, study.generations)),
            "sweeps": list(map(asdict, (*study.sweeps, *study.target_sweeps))),
        }
        more = f"+{len(models) - 1}" if len(models) > 1 else ""
        return _address(f"{models[0]}{more}" if models else "nothing", asked)

    @property
    def file(self) -> Path:
        """The file with the configuration of the study."""
        return self.results / STUDIES.name / self.name / "study.json"

    @property
    def manifest(self) -> Path:
        """The study's unique operator tuples."""
        return self.file.with_name("operator_tuples.json")

    def _extraction(self, model: str) -> str:
        return extraction_address(self.study.models[model], self.software)

    def _conditions(self, conditions: Conditions) -> str:
        device = self._device(conditions.target)
        return conditions_address(conditions, device, self._environment(conditions.target))

    def _environment(self, settings: Target) -> dict[str, Any]:
        """The columns of a target's environment that are known without opening its device."""
        device = self._device(settings)
        kind, known = kind_of(device), dict[str, Any](self.software)
        if kind is not None and self.machine:
            known |= kind.recorded()
            if not kind.is_processor:
                known |= _gpu(device, settings)
        return known


def conditions_address(conditions: Conditions, device: str, known: Mapping[str, Any]) -> str:
    """The name of conditions on a device with the known columns of its environment."""
    settings, kind, environment = conditions.target, kind_of(device), dict(known)
    if kind is not None and kind.is_processor:
        environment.pop("cuda_version", None)
    if settings.any_of_kind:
        environment = {
            name: each for name, each in environment.items() if name not in OF_ONE_DEVICE
        }
    parts = [
        device.replace(":", ""),
        f"{settings.threads}thread{'s' if settings.threads > 1 else ''}",
        *(f"torch{each}" for each in [environment.get("torch_version")] if each),
    ]
    return _address("-".join(parts), [meaning(conditions.to_json()), environment])


def extraction_address(definition: ModelDefinition, software: Software) -> str:
    """The name of a model's tuples and calls."""
    without_cuda = {name: each for name, each in software.items() if name != "cuda_version"}
    return _address(definition.name, [definition.to_json(), without_cuda, SCHEMA_VERSION])


def definition_address(definition: ModelDefinition) -> str:
    """The name of a model's end-to-end measurements."""
    return _address(definition.name, definition.to_json())


def refuse_other_device(folder: Path, device: str) -> None:
    """Raise OpcostError if the results of a device would be in the folder of another one, because
    `auto` was resolved differently without opening it.
    """
    stated, kind = folder.name.partition("-")[0].rstrip("0123456789"), kind_of(device)
    if kind is not None and kind_of(stated) is not None and stated != kind.name:
        raise OpcostError(
            f"target {folder.parent.name}: its results would lie under {stated}, and for PyTorch "
            f"`auto` is {device}: set `device` of the target to {device}"
        )


def _address(readable: str, of: Any) -> str:
    digest = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:8]
    return f"{re.sub(r'[^][A-Za-z0-9_.,=+-]', '_', readable)}-{digest}"


def _uuid(kind: str, number: str) -> str | None:
    """The UUID of a device, found without opening it."""
    try:
        return untouched_uuid(kind, number)
    except MeterUnavailable:
        return None


def _gpu(device: str, settings: Target) -> dict[str, Any]:
    """A GPU's identity and its power limit, which a target may set; empty without NVML."""
    kind, _, number = device.partition(":")
    uuid = _uuid(kind, number)
    if uuid is None:
        return {}
    limit_w = settings.power_limit_w or gpu_state(uuid).get("power_limit_w")
    return {"device_uuid_hash": hashed_uuid(uuid), "power_limit_w": limit_w}
