"""Pickles and JSON files beside the rows, with values that cannot be, or damaged anywhere."""

import copy
import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opcost.energy import sensor
from opcost.rows.overhead_samples import read_samples
from opcost.tuples import manifest as manifests
from opcost.tuples.model_table import rows_of
from opcost.tuples.model_tuples import read_extractions

from tests.fuzz import subjects
from tests.fuzz.tally import Case

NAN, INF = float("nan"), float("inf")
ANYTHING = (None, True, -1, 0, 10**30, 1.5, NAN, INF, "", "x", [], {}, [[]], "\ud800", "\x00")

Wrong = tuple[tuple[str | int, ...], tuple[Any, ...]]
"""The path of a value in a document, and what it cannot be."""

MODEL_WRONG: tuple[Wrong, ...] = (
    (("calls", 0, 0), (-1, 99, 1.5, None, "0", True)),
    (("calls", 0, 1), (None, 5, [])),
    (("calls", 0), ([0], [0, "a"], 5, None)),
    (("calls",), (None, 5, {"a": 1})),
    (("tuples", 0, "flops"), (-5, NAN, "5", 1.5, INF)),
    (("tuples", 0, "bytes"), (-5, NAN, "5", None, 1.5)),
    (("tuples", 0, "launches_kernel"), (None, "yes", 2)),
    (("tuples", 0, "outputs", 0, "shape"), ([-1], ["a"], [1.5], None, 5)),
    (("tuples", 0, "outputs", 0, "dtype"), ("float 33", None, 5)),
    (("tuples", 0, "parameters"), (None, [5], "weight")),
    (("tuples", 0, "canonical_json"), ("{", "{}", "[]", None, 5)),
    (("tuples", 0, "canonical_json"), ('{"operator": 5, "arguments": {}}',)),
    (("tuples",), (None, {}, 5)),
    (("model",), (None, 5, "", "../x", ["x"])),
    (("parameters",), (-1, 1.5, NAN, "5")),
    (("torch_version",), (5, [], None)),
    (("extraction_s",), (NAN, -1, "1", INF)),
    (("definition",), ("{", "{}", "[]", 5)),
    (("refusal",), (5, [])),
    (("schema_version",), (None, "3", 99, 0)),
)  # fmt: skip
MANIFEST_WRONG: tuple[Wrong, ...] = (
    *(
        (("tuples", "*", *place[2:]), values)
        for place, values in MODEL_WRONG
        if place[:2] == ("tuples", 0)
    ),
    (("tuples", "*", "excluded"), (5, "because", True)),
    (("tuples",), (None, [], 5)),
    (("refused",), (None, 5, [5])),
    (("schema_version",), (None, "3", 99)),
)
SECONDS = (NAN, INF, -1.0, "x", None, [], True)
DEVICE_WRONG: tuple[Wrong, ...] = (
    (("overhead", 0, 0), SECONDS),
    (("overhead", 2, 1), SECONDS),
    (("overhead", 3, 2), SECONDS),
    (("overhead", 0, 3), (None, 5, "no")),
    (("overhead", 0, 4), (-1, "no")),
    (("overhead", 0), ([], [1.0], {}, "x")),
    (("overhead",), ("x", 5, True)),
    (("quiet_s",), (NAN, INF, -1, 0, "x", [], True)),
    (("device",), (None, 5, "", [], "\x1b[31m")),
    (("device_name",), (None, 5, [])),
    (("lock_key",), ("../x", "a/b", 5, [], "\x00")),
)
SENSOR_WRONG: tuple[Wrong, ...] = (
    *(
        (("readings", "rapl", name), (NAN, INF, -1.0, "x", [], True))
        for name in ("refresh_s", "averaging_s", "lag_s", "rise_s", "correlated_share")
    ),
    (("readings", "rapl", "correlated_share"), (1.5, 100)),
    (("readings", "rapl"), ([], 5, "x")),
    (("readings",), ([1], 5, "x")),
    (("counter", "refresh_s"), (NAN, INF, -1.0, "x", [])),
    (("counter",), ([1], 5, "x")),
    (("idle_power_w",), (NAN, INF, -1.0, "x", [])),
    (("schema_version",), (None, 99, "1")),
)


def changed(document: Any, wrong: tuple[Wrong, ...], generator: random.Random) -> tuple[Any, str]:
    """The document with one value that it cannot have; and which."""
    place, values = generator.choice(wrong)
    value = generator.choice(values)
    found = document = copy.deepcopy(document)
    for key in place[:-1]:
        found = found[generator.choice(sorted(found)) if key == "*" else key]
    found[place[-1]] = value
    return document, f"{'.'.join(map(str, place))} = {value!r}"


def anyhow(document: Any, generator: random.Random) -> Any:
    """The document with any value of it replaced, or left out, whatever that means."""
    document = copy.deepcopy(document)
    found = document
    while True:
        keys = list(found) if isinstance(found, dict) else list(range(len(found)))
        if not keys:
            return document
        key = generator.choice(keys)
        inner = found[key]
        if isinstance(inner, dict | list) and inner and generator.random() < 0.8:
            found = inner
            continue
        if generator.random() < 0.3:
            del found[key]
        else:
            found[key] = generator.choice(ANYTHING)
        return document


def damaged(content: bytes, generator: random.Random) -> bytes:
    """Bytes with some changed, or the end missing."""
    if generator.random() < 0.2:
        return content[: generator.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(generator.choice((1, 1, 3))):
        changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
    return bytes(changed)


def _case(
    path: Path,
    document: Any,
    dump: Callable[[Any], bytes],
    wrong: tuple[Wrong, ...],
    read: Callable[[Path], Any],
) -> Case:
    content = dump(document)

    def case(generator: random.Random) -> str | None:
        kind = generator.random()
        said = None
        if kind < 0.5:
            forged, said = changed(document, wrong, generator)
            path.write_bytes(dump(forged))
        elif kind < 0.8:
            path.write_bytes(dump(anyhow(document, generator)))
        else:
            path.write_bytes(damaged(content, generator))
        read(path)
        return said

    return case


def _as_json(document: Any) -> bytes:
    return json.dumps(document).encode()


def _as_manifest(document: dict[str, Any]) -> bytes:
    """One tuple a line, as opcost writes it."""
    if not isinstance(document.get("tuples"), dict):
        return _as_json(document)
    head = {key: value for key, value in document.items() if key != "tuples"}
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in document["tuples"].items())
    return f'{json.dumps(head)[:-1]}, "tuples": {{\n{lines}\n}}}}\n'.encode()


def pickles(folder: Path) -> Case:
    """A model's tuples, read and tabulated."""
    path = subjects.model_tuples(folder)

    def read(path: Path) -> None:
        [model] = read_extractions([path])
        model.call_counts()
        manifests.collect([model], None)
        rows_of([model])

    def dump(document: Any) -> bytes:
        return pickle.dumps(document, protocol=4)

    return _case(path, pickle.loads(path.read_bytes()), dump, MODEL_WRONG, read)


def manifest_files(folder: Path) -> Case:
    """A manifest, read whole and by tuple."""
    path = subjects.manifest(folder)
    document = json.loads(path.read_text())

    def read(path: Path) -> None:
        found = manifests.read_manifest(path)
        manifests.read_refused(path)
        for tuple_id in manifests.to_benchmark(found):
            manifests.read_record(path, tuple_id)

    return _case(path, document, _as_manifest, MANIFEST_WRONG, read)


def device_files(folder: Path) -> Case:
    """What is known of a device, sensor and calls: one of the three files each time."""
    device = subjects.write_json(folder / "local" / "cpu-0" / "device.json", subjects.DEVICE)
    later = device.with_name("overhead_2.json")
    of_overhead = tuple(each for each in DEVICE_WRONG if each[0][0] == "overhead")

    def read_sensor(path: Path) -> None:
        assumed = sensor.Sensor(refresh_s=0.1, averaging_s=0.1)
        sensor.read_document(path)
        sensor.read_sensor(path, "rapl", assumed)

    cases = (
        _case(device, subjects.DEVICE, _as_json, DEVICE_WRONG, read_samples),
        _case(later, subjects.DEVICE, _as_json, of_overhead, read_samples),
        _case(
            device.with_name("sensor.json"), subjects.SENSOR, _as_json, SENSOR_WRONG, read_sensor
        ),
    )

    def case(generator: random.Random) -> str | None:
        subjects.write_json(device, subjects.DEVICE)
        return generator.choice(cases)(generator)

    return case
