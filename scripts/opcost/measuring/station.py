"""The station: an opened target, on which subjects are measured, and whose power sensor is
characterised.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

import opcost
from opcost.devices.device import Device
from opcost.devices.disturbance import Watch
from opcost.devices.environment import describe_environment
from opcost.energy.characterization import characterise, idle_power_w
from opcost.energy.limited_meter import open_limited
from opcost.energy.load import SYSTEM_CLOCK, Clock
from opcost.energy.meter import Meter, MeterUnavailable, sensor_of
from opcost.energy.meters import open_meter, untouched_uuid
from opcost.energy.sensor import IDENTITY, SCHEMA_VERSION, Sensor, check_document, meter_fault
from opcost.errors import OpcostError
from opcost.files import parse_json, write_json
from opcost.measuring.power_load import WorkloadLoad
from opcost.measuring.target_identity import TargetFiles, expected_device
from opcost.measuring.timing import calibrate, timer_of
from opcost.rows import records
from opcost.study import Conditions

_BLOCK_S = 0.1


@dataclass(frozen=True)
class Station:
    """An opened target. `open_meter` raises MeterUnavailable if power cannot be measured."""

    target: str
    conditions: Conditions
    device: Device
    watch: Watch
    open_meter: Callable[[], Meter]
    find_sensor: Callable[[Meter], Sensor] = lambda meter: meter.assumed
    clock: Clock = SYSTEM_CLOCK

    def columns(self) -> dict[str, Any]:
        """The columns of target, conditions and environment."""
        return {
            **records.condition_columns(self.conditions, self.target),
            **describe_environment(self.device),
            "quiet_sentinel_time_s": self.watch.baseline_s,
        }


def open_station(files: TargetFiles, fault: str | None = None) -> Station:
    """Open a target. With a `fault`, the meter is not opened.

    Raises OpcostError if the device or the environment has changed since the study began, or if the
    sensor file cannot be read: every row would fail.
    """
    device, watch = expected_device(files.conditions.target, files.target, files.device_file)
    known = None if files.sensor_file is None else meter_fault(files.sensor_file)
    reason = fault or known

    def open_unless_faulty() -> Meter:
        if reason:
            raise MeterUnavailable(reason)
        return open_limited(partial(open_meter, device.kind.name, device.uuid))

    find_sensor = partial(sensor_of, path=files.sensor_file)
    return Station(files.target, files.conditions, device, watch, open_unless_faulty, find_sensor)


def characterise_target(name: str, open_device: Callable[[], Device], output: Path) -> None:
    """Write the sensor file of a target's device; without a meter, it contains the reason.

    `name` is the device as named in the target. Raises what `open_device` raises.
    """
    before_w = _idle_without_context_w(name)
    device = open_device()
    environment = describe_environment(device)
    described = ("device", *IDENTITY, "torch_version")
    head: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "opcost_version": opcost.__version__,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: environment[name] for name in described},
    }
    try:
        meter = open_limited(partial(open_meter, device.kind.name, device.uuid))
        uuid, idle_w = before_w
        body = characterise(
            meter,
            _matrix_product(device),
            idle_without_context_w=idle_w if uuid == device.uuid else None,
        )
        source, consequence = f"the characterisation of {meter.name}", "it is not used"
        body = parse_json(json.dumps(body), source, consequence)
        check_document(body, source, consequence)
    except (MeterUnavailable, OpcostError) as unavailable:
        body = {"meter": None, "meter_reason": str(unavailable)}
    except (ArithmeticError, ValueError) as error:  # from impossible readings
        body = {
            "meter": None,
            "meter_reason": f"the power meter's readings make no sense: {error}",
        }
    write_json(output, {**head, **body})


def _matrix_product(device: Device) -> WorkloadLoad:
    """A load of matrix products that saturates the device."""
    size = device.busy_matrix
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(size, size, generator=generator).to(device.torch_device)
    product = torch.empty_like(matrix)

    class Products:
        rotation = 1
        in_use = False

        def run(self, iterations: int) -> None:
            for _ in range(iterations):
                torch.mm(matrix, matrix, out=product)

    workload = Products()
    timer = timer_of(workload, device, _BLOCK_S)
    iterations = calibrate(timer, _BLOCK_S)
    return WorkloadLoad(workload, device, timer.block(iterations).device_s / iterations)


def _idle_without_context_w(device: str) -> tuple[str | None, float | None]:
    """(UUID, watts) of a GPU that this process has not opened yet, or None for both."""
    kind, _, index = device.partition(":")
    try:
        uuid = untouched_uuid(kind, index)
        if uuid is None:
            return None, None
        return uuid, idle_power_w(open_limited(partial(open_meter, kind, uuid)))
    except MeterUnavailable:
        return None, None
