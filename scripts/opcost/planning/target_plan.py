"""The plan of a target, from the files of a study, and its text."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING

from opcost.addresses import Addresses
from opcost.devices.kinds import kind_of
from opcost.errors import OpcostError
from opcost.launch_modes import EAGER
from opcost.planning.plan import (
    Plan,
    Row,
    device_of,
    measured_end_to_end,
    measured_tuples,
    memory_bytes,
    models_on,
    plan,
)
from opcost.planning.rounds import Round, expect_target_rounds, read_round
from opcost.results_folder import round_plan
from opcost.study import Study
from opcost.target import Target
from opcost.text import counted, duration, wrapped
from opcost.tuples.manifest import collect
from opcost.tuples.model_tuples import ModelTuples
from opcost.tuples.tuple_record import TupleRecord

if TYPE_CHECKING:  # it imports torch
    from opcost.devices.device import Device

_MIB = 2**20


def plan_target(addresses: Addresses, target: str) -> Plan:
    """The plan of one target, from the results folder. Raises OpcostError for a damaged file."""
    models = models_on(addresses, target)
    tuples = _to_benchmark(addresses.study, models)
    return _plan(addresses, target, models, tuples, device_of(addresses, target))


def describe_plans(addresses: Addresses, open_device: Callable[[Target], "Device"]) -> str:
    """The text of the plan: remaining measurements of each target, with time and memory.

    `open_device` raises OpcostError if a target's device is not on this machine.
    """
    parts, study = [], addresses.study
    for target, conditions in study.conditions.items():
        models = models_on(addresses, target)
        tuples = _to_benchmark(study, models)
        device = device_of(addresses, target)
        planned = _plan(addresses, target, models, tuples, device)
        rows = measured_end_to_end(addresses, target)
        own = [model for model in models if not model.is_operator]
        measured = {row["model"] for row in _named(rows, {each.model for each in own})}
        new_models = [model.model for model in own if model.model not in measured]
        rounds = (
            expect_target_rounds(addresses, target, models, planned)
            if planned.known or planned.chosen
            else []
        )
        lines = [
            f"Target {target}",
            f"  operators: {len(tuples)} tuples, {len(planned.known)} measured, "
            f"{len(planned.chosen)} to measure{_beyond(planned)}",
            f"  models: {len(own)}, {len(measured)} measured, {len(new_models)} to measure",
            *_to_trace(own, device),
            _measuring_time(planned),
            *_later_rounds(study, planned, rounds),
            *_end(planned, rounds),
            *_budget(study.max_device_time_s, planned),
            *_memory(tuples, planned, conditions.target, open_device),
        ]
        parts.append("\n".join([lines[0], *wrapped(map(str.strip, lines[1:]), "  ")]))
    return "\n\n".join(parts)


def planned_line(target: str, planned: Plan) -> str:
    """The plan in a line, for the terminal of a run."""
    parts = {"operator tuple": len(planned.chosen), "model": planned.models}
    found = ", ".join(counted(number, noun) for noun, number in parts.items() if number)
    before = f", {len(planned.known)} tuples measured before" if planned.known else ""
    needed = duration(planned.needed_s)
    return f"[plan] {target}: about {needed} for {found}{before}{_beyond(planned)}"


def beyond_budget(addresses: Addresses, target: str) -> list[str]:
    """The measurements that the study's budget left out on a target."""
    planned, folder = plan_target(addresses, target), addresses.folders[target]
    missing = len(planned.chosen) + len(planned.beyond)
    left_out = []
    if missing:
        of = counted(len(planned.known) + missing, "operator tuple")
        left_out.append(f"{missing} of {of}, which are predicted for models where that is possible")
    plans = [
        round_plan(folder, addresses.name, number)
        for number in range(2, addresses.study.rounds + 1)
    ]
    if any(read_round(path).is_cut for path in plans if path.exists()):
        left_out.append("further runs, which would narrow the intervals")
    return left_out


def _to_trace(models: Sequence[ModelTuples], device: str) -> list[str]:
    """A note on additional tuples, if the device traces the models' calls."""
    kind, missing = kind_of(device), sum(model.device_name is None for model in models)
    if kind is None or kind.is_processor or not missing:
        return []
    return [f"  calls: {counted(missing, 'model')} to trace on the device: maybe more tuples"]


def _to_benchmark(study: Study, models: Sequence[ModelTuples]) -> dict[str, TupleRecord]:
    manifest = collect(models, study.operators)
    return {
        tuple_id: TupleRecord.from_document(entry)
        for tuple_id, entry in manifest.items()
        if entry["excluded"] is None
    }


def _plan(
    addresses: Addresses,
    target: str,
    models: Sequence[ModelTuples],
    tuples: Mapping[str, TupleRecord],
    device: str,
) -> Plan:
    study = addresses.study
    names = {model.model for model in models if not model.is_operator}
    first = [
        measured_end_to_end(addresses, target, 1, mode) for mode in (EAGER, *study.launch_modes)
    ]
    own = [_named(rows, names) for rows in first]
    return plan(
        models,
        tuples,
        measured_tuples(addresses.folders[target]),
        study.conditions[target].measurement,
        study.max_device_time_s,
        sum(len(names) - len(rows) for rows in own),
        device,
        [row for row in chain(*first) if row["status"] == "ok"],
    )


def _named(rows: Iterable[Row], models: Collection[str]) -> list[Row]:
    return [row for row in rows if row["model"] in models]


def _beyond(planned: Plan) -> str:
    return f", {len(planned.beyond)} beyond the budget" if planned.beyond else ""


def _measuring_time(planned: Plan) -> str:
    if not planned.needed_s:
        return "  measuring time: nothing left to measure"
    learned = planned.job_s_is_measured
    source = "as jobs took so far" if learned else "by the settings, until some are measured"
    each = f"about {planned.job_s:.1f} s a tuple, {source}"
    return f"  measuring time: {duration(planned.needed_s)} remaining in round 1 ({each})"


def _later_rounds(study: Study, planned: Plan, rounds: Sequence[Round]) -> list[str]:
    """A line about the rounds after the first, if there are any."""
    if not rounds:
        return []
    number = sum(len(each.new) for each in rounds)
    if number:
        what = f"at most about {duration(_needed_s(rounds))} for {counted(number, 'measurement')}"
        fewer = "fewer as intervals become narrower" if len(rounds) > 1 else ""
        return [f"  later rounds: {what}{fewer and f'; {fewer}'}"]
    if planned.beyond:
        return ["  later rounds: no time for them within the budget"]
    if any(each.is_cut for each in rounds):
        return ["  later rounds: nothing that the budget has time for"]
    return [f"  later rounds: nothing left to measure within {study.rounds} rounds"]


def _end(planned: Plan, rounds: Sequence[Round]) -> list[str]:
    """The earliest end, later than the measuring time suggests (docs/how_to/run.md)."""
    least_s, most_s = planned.needed_s, planned.needed_s + _needed_s(rounds)
    if not most_s:
        return []
    in_all = duration(least_s) if most_s == least_s else f"at most about {duration(most_s)}"
    end = datetime.now() + timedelta(seconds=least_s)
    return [f"  in all: {in_all} of measuring time; if started now, done after {end:%a %H:%M}"]


def _needed_s(rounds: Sequence[Round]) -> float:
    return sum(each.needed_s for each in rounds)


def _budget(max_device_time_s: float | None, planned: Plan) -> list[str]:
    if max_device_time_s is None:
        return []
    more = ""
    if planned.beyond:
        none = "" if planned.chosen else "no further operator fits into it; "
        more = f"; {none}all would take {duration(planned.beyond_s())} more"
    return [
        f"  budget: {duration(max_device_time_s)} (--max-device-time, max_device_time_s); the "
        f"measured operators are expected to explain {planned.expected_coverage():.0%} of the "
        f"models' time{more}"
    ]


def _memory(
    tuples: Mapping[str, TupleRecord],
    planned: Plan,
    target: Target,
    open_device: Callable[[Target], "Device"],
) -> list[str]:
    if not planned.chosen:
        return []
    largest = max(planned.chosen, key=lambda tuple_id: memory_bytes(tuples[tuple_id]))
    needed = memory_bytes(tuples[largest])
    text = f"  memory: {needed / _MIB:.0f} MiB for {tuples[largest].operator_tuple}"
    try:
        free = open_device(target).free_memory_bytes()
    except OpcostError as error:
        return [f"{text}; free memory of the device is unknown here: {error}"]
    lines = [f"{text} (the largest operator), plus workspace; {free / _MIB:.0f} MiB are free"]
    for tuple_id in planned.chosen:
        if memory_bytes(tuples[tuple_id]) > free:
            lines.append(f"  does not fit: {tuples[tuple_id].operator_tuple}")
    return lines
