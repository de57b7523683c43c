"""An estimate as a trace for speedscope or Perfetto: a model's calls in order, in their modules.

On a processor, a call takes its operator's time and its call overhead, which is all that a view
takes. On a GPU it takes the device's time; all that the device waits for its host is a last slice,
of no module.
"""

# Slices begin and end by events of their own, because Perfetto rounds the begin and the duration of
# complete events ("X") to nanoseconds each, and drops one that then ends after the one around it.

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import opcost
from opcost.costs.breakdown import WAITING
from opcost.costs.explanation import Explanation
from opcost.files import replacing
from opcost.rows.comparability import MUST_AGREE, OF_ONE_DEVICE
from opcost.rows.quantities import ENERGY, TIME


@dataclass(frozen=True)
class Slice:
    """A bar of the trace. `label` says more than `name`, for viewers that show no arguments."""

    kind: str
    name: str
    label: str
    arguments: Mapping[str, Any] = field(default_factory=dict, compare=False)


def write_trace(explanation: Explanation, output: Path) -> None:
    """Write a complete estimate for speedscope (`.speedscope.json`), or else for Perfetto."""
    made = _speedscope if output.name.endswith(".speedscope.json") else _perfetto
    with replacing(output) as temporary:
        temporary.write_text(json.dumps(made(explanation), allow_nan=False), encoding="utf-8")


def _speedscope(explanation: Explanation) -> dict[str, Any]:
    """An evented profile in speedscope's file format."""
    events = list(_events(explanation))
    frames = {each: number for number, each in enumerate(dict.fromkeys(e[2] for e in events))}
    title = f"{explanation.estimate.model.model} on {explanation.target}, estimated by opcost"
    span = {"unit": "seconds", "startValue": 0.0, "endValue": events[-1][1]}
    listed = [{"type": kind, "at": at, "frame": frames[each]} for kind, at, each in events]
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": title,
        "exporter": f"opcost@{opcost.__version__}",
        "shared": {"frames": [{"name": each.label} for each in frames]},
        "profiles": [{"type": "evented", "name": title, **span, "events": listed}],
        "opcost": metadata(explanation),
    }


def _perfetto(explanation: Explanation) -> dict[str, Any]:
    """The JSON of Chrome's tracing, which Perfetto reads, in microseconds."""
    device = f"{explanation.target} ({explanation.device_name or 'unknown device'})"
    names = {"process_name": f"opcost {opcost.__version__}, estimate", "thread_name": device}
    place: dict[str, Any] = {"pid": 1, "tid": 1}
    found = [{**place, "ph": "M", "name": of, "args": {"name": is_}} for of, is_ in names.items()]
    for kind, at_s, each in _events(explanation):
        known = {name: value for name, value in each.arguments.items() if value is not None}
        more = {"ph": "B", "args": known} if kind == "O" else {"ph": "E"}
        found.append({**place, "name": each.name, "cat": each.kind, "ts": 1e6 * at_s, **more})
    return {"traceEvents": found, "displayTimeUnit": "ns", "otherData": metadata(explanation)}


def metadata(explanation: Explanation) -> dict[str, Any]:
    """What the trace is of, and the conditions under which its operators were measured."""
    compared, row = explanation.compared, explanation.estimate.rows[0]
    costs = (*TIME.of("estimate").names, *ENERGY.of("estimate").names, "energy_reason")
    conditions = {name: row[name] for name in MUST_AGREE if name not in OF_ONE_DEVICE}
    return {
        "what": "an estimate from measurements of single operators, not a recording",
        "opcost_version": opcost.__version__,
        **{name: compared[name] for name in ("model", "inputs", "dtype", *costs)},
        "target": explanation.target,
        "device_name": explanation.device_name,
        "calls_unverified": explanation.calls_unverified,
        "database": str(explanation.database),
        "measured_on": explanation.measured_on,
        "conditions_id": explanation.conditions_id,
        "conditions": {name: value for name, value in conditions.items() if value is not None},
    }


def _events(explanation: Explanation) -> Iterator[tuple[str, float, Slice]]:
    """Whether a slice opens ("O") or closes ("C"), after how many seconds, and which one."""
    assert explanation.estimate.time is not None
    total_s, at_s, sum_s = explanation.estimate.time.value, 0.0, 0.0
    opened: list[Slice] = []
    for stack in stacks(explanation):
        pairs = zip(opened, stack[:-1], strict=False)
        common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        yield from (("C", at_s, each) for each in reversed(opened[common:]))
        yield from (("O", at_s, each) for each in stack[common:])
        sum_s += stack[-1].arguments["time_s"]
        at_s = min(max(at_s, sum_s), total_s)  # overheads may be negative, slices may not
        yield "C", at_s, stack[-1]
        opened = stack[:-1]
    yield from (("C", at_s, each) for each in reversed(opened[1:]))
    yield "C", total_s, opened[0]


def stacks(explanation: Explanation) -> Iterator[list[Slice]]:
    """Each call, after the slices around it; and at the end, the wait for the host."""
    estimate, model = explanation.estimate, explanation.estimate.model
    rows = {term.record.operator_tuple.tuple_id: term.row for term in estimate.terms}
    found = [
        [row and estimate.noise.value(row, each) for each in (TIME, ENERGY)]
        for row in map(rows.get, model.by_id)
    ]
    classes = {call.module_path: call.module_class for call in model.calls}
    root = Slice("model", model.model, model.model, metadata(explanation))
    sums = estimate.operators_time, estimate.operators_energy
    power_w = sums[1].value / sums[0].value if sums[0] and sums[1] else None
    more_s = [] if estimate.iteration else estimate.overhead_by_call_s
    for call, beyond_s in zip(model.calls, more_s or [0.0] * len(model.calls), strict=True):
        around = [root]
        around += [Slice("phase", call.phase, call.phase)] if model.trains else []
        for path in itertools.accumulate(filter(None, call.module_path.split(".")), "{}.{}".format):
            label = f"{path} ({classes[path]})" if path in classes else path
            about = {"parameters": (model.module_parameters or {}).get(path)}
            around.append(Slice("module", path, label, about | {"class": classes.get(path)}))
        record = model.tuples[call.position]
        own, (time, energy) = record.operator_tuple, found[call.position]
        energy_j = (energy.value if energy else 0.0) + (power_w or 0.0) * beyond_s
        arguments = {
            "description": str(own),
            "operator": own.operator,
            "tuple_id": own.tuple_id,
            "module": call.module_path,
            "module_class": call.module_class,
            "time_s": (time.value if time else 0.0) + beyond_s,
            "overhead_s": beyond_s if more_s else None,
            "energy_j": None if power_w is None else energy_j,
            "flops": record.flops,
            "bytes": record.bytes,
        }
        kind = "operator" if record.launches_kernel else "view"
        yield [*around, Slice(kind, own.name, str(own), arguments)]
    if estimate.iteration and estimate.iteration.idle.value:
        rest_j = estimate.energy.value - sums[1].value if estimate.energy and sums[1] else None
        wait = {"time_s": estimate.iteration.idle.value, "energy_j": rest_j}
        yield [root, Slice("wait", WAITING, WAITING, wait)]
