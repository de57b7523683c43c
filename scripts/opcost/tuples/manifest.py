"""The manifest: every unique tuple of a study's models, and whether it is benchmarked."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opcost.errors import OpcostError, closest
from opcost.files import lines_of, parse_json, read_json, replacing
from opcost.tuples.model_tuples import ModelTuples
from opcost.tuples.operator_tuple import id_of, short_name
from opcost.tuples.tuple_record import SCHEMA_VERSION, TupleRecord, check_record, check_version
from opcost.values import OBJECTS, PRINTABLE, check_values, list_of, one_of, shown

_RULES = {"refused": list_of(PRINTABLE), "tuples": OBJECTS}
_ENTRY_RULES = {"excluded": one_of(None, "view", "filtered")}


def collect(
    models: Iterable[ModelTuples], operators: Sequence[str] | None
) -> dict[str, dict[str, Any]]:
    """The manifest: every unique tuple over all models, by tuple id.

    Each entry is a `TupleRecord` document with `excluded`: None if the tuple is to be benchmarked,
    else "view" or "filtered" (not among `operators`, where None means all). Raises OpcostError for
    a name in `operators` that is not an operator.
    """
    records: dict[str, TupleRecord] = {}
    for model in models:
        for record in model.tuples:
            tuple_id = record.operator_tuple.tuple_id
            records[tuple_id] = records.get(tuple_id, record).joined(record)
    selected = None if operators is None else _check_operators(operators, records.values())
    return {
        tuple_id: {**record.to_document(), "excluded": _excluded(record, selected)}
        for tuple_id, record in sorted(records.items())
    }


def write_manifest(
    path: Path, manifest: Mapping[str, Mapping[str, Any]], refused: Iterable[str] = ()
) -> None:
    """Write the manifest as JSON with one line per tuple; equal tuples give equal bytes.

    `refused` are the names of the models that could not be extracted.
    """
    lines = [
        f"{json.dumps(tuple_id)}: {json.dumps(entry, sort_keys=True)}"
        for tuple_id, entry in sorted(manifest.items())
    ]
    body = ",\n".join(lines)
    head = f'"schema_version": {SCHEMA_VERSION}, "refused": {json.dumps(sorted(refused))}'
    with replacing(path) as temporary:
        temporary.write_text(f'{{{head}, "tuples": {{\n{body}\n}}}}\n', encoding="utf-8")


def read_manifest(path: Path) -> dict[str, dict[str, Any]]:
    """Read the manifest. Raises OpcostError for a damaged or foreign file."""
    manifest: dict[str, dict[str, Any]] = _read_manifest(path)["tuples"]
    for tuple_id, entry in manifest.items():
        _check_entry(tuple_id, entry, path)
    return manifest


def read_refused(path: Path) -> set[str]:
    """The models that could not be extracted, from the manifest. Raises OpcostError."""
    return set(_read_manifest(path)["refused"])


def _read_manifest(path: Path) -> dict[str, Any]:
    document = read_json(path, _remedy(path))
    check_version(document, path, _remedy(path))
    check_values(document, _RULES, path, _remedy(path))
    return document


def _check_entry(tuple_id: str, entry: Any, path: Path) -> None:
    source, remedy = f"{path}: tuple {shown(tuple_id)}", _remedy(path)
    check_record(entry, source, remedy)
    check_values(entry, _ENTRY_RULES, source, remedy)
    if id_of(entry["canonical_json"]) != tuple_id:
        raise OpcostError(
            f"{source} describes another tuple ({shown(entry['canonical_json'])}): {remedy}"
        )


def _remedy(path: Path) -> str:
    return f"delete {path} and run again"


def read_record(path: Path, tuple_id: str) -> TupleRecord:
    """One tuple of the manifest; parses only its line, because a manifest may have thousands.

    Raises OpcostError for a damaged or foreign file, or one without the tuple.
    """
    remedy, key = _remedy(path), f"{json.dumps(tuple_id)}: "
    try:
        with lines_of(path) as lines:
            check_version(parse_json(f"{next(lines, '')}}}}}", path, remedy), path, remedy)
            line = next((line for line in lines if line.startswith(key)), None)
    except UnicodeDecodeError as error:
        raise OpcostError(f"{path} is not UTF-8 text ({error}): {remedy}") from error
    if line is None:
        raise OpcostError(
            f"{path} has no tuple {tuple_id}: no model of the study executes it. Add a model that "
            "does, or name a tuple that the file lists"
        )
    entry = parse_json(line.removeprefix(key).rstrip(",\n"), f"{path}: {tuple_id}", remedy)
    _check_entry(tuple_id, entry, path)
    return TupleRecord.from_document(entry, path, remedy)


def to_benchmark(manifest: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The ids of the tuples that are benchmarked."""
    return [tuple_id for tuple_id, entry in manifest.items() if entry["excluded"] is None]


def _excluded(record: TupleRecord, selected: set[str] | None) -> str | None:
    if not record.launches_kernel:
        return "view"
    operator = record.operator_tuple.operator
    if selected is not None and selected.isdisjoint({operator, short_name(operator)}):
        return "filtered"
    return None


def _check_operators(operators: Sequence[str], records: Iterable[TupleRecord]) -> set[str]:
    executed = {record.operator_tuple.operator for record in records}
    names = executed | {short_name(operator) for operator in executed}
    unknown = [name for name in operators if name not in names and not _exists(name)]
    if unknown:
        hints = [f"{name!r} is no operator. {closest(name, names)}".strip() for name in unknown]
        executed_names = ", ".join(sorted({short_name(operator) for operator in executed}))
        raise OpcostError(
            f"operators: {' '.join(hints)}\n  The models of this study execute: {executed_names}"
        )
    return set(operators)


def _exists(name: str) -> bool:
    """Whether torch has an operator of that name."""
    import torch  # only for a name that no model executes

    parts = name.split(".")
    packet = parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[0]
    return hasattr(torch.ops.aten, packet)
