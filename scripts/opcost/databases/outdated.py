"""Find measurements of settings or models that differ from the current study.

Rows and files state their settings. Snakemake's records of parameters are not used: they may be
deleted, and rows may have been restored or copied from elsewhere.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from opcost.databases.earlier import stated_files
from opcost.devices.device_file import read_device
from opcost.errors import OpcostError
from opcost.fingerprint import identity
from opcost.results_folder import device_file, key_of, sensor_file, target_of
from opcost.rows import records, schemas
from opcost.rows.comparability import meaning
from opcost.tuples.model_tuples import read_model_tuples


def operators_measured_otherwise(
    paths: Sequence[Path], conditions: Mapping[str, str], database: Path
) -> list[Path]:
    """The operator files whose row was measured under conditions of another meaning than the
    current ones.

    `conditions` are JSON, by target. Files that are unchanged since `database` was made are not
    read. Unreadable files are not in the result.
    """
    known = stated_files(database)
    rows = {path: known.get(key_of(path), (-1, set())) for path in paths}
    same = {path: row for path, row in rows.items() if identity(path) in row[1]}
    stated = {}
    if same:
        names = ("conditions_json", "executions")
        texts, counts = (
            records.read(database, schemas.DATABASE, names)[name].to_pylist() for name in names
        )
        # A row is of the conditions of all its files if it combines all of them.
        stated = {
            path: texts[number]
            for path, (number, files) in same.items()
            if len(files) in (1, counts[number])
        }
    for path in paths:
        if path not in stated:
            for [text] in _texts(path, schemas.OPERATOR, ["conditions_json"]):
                stated[path] = text
    wanted = {target: meaning(text) for target, text in conditions.items()}
    return [path for path, text in stated.items() if meaning(text) != wanted[target_of(path)]]


def models_measured_otherwise(
    paths: Sequence[Path], conditions: Mapping[str, str], definitions: Mapping[str, str]
) -> list[Path]:
    """The model files whose row has another definition, or conditions of another meaning."""
    wanted = {target: meaning(text) for target, text in conditions.items()}
    return [
        path
        for path in paths
        for text, definition in _texts(path, schemas.MODEL, ["conditions_json", "definition_json"])
        if (meaning(text), definition) != (wanted[target_of(path)], definitions[path.stem])
    ]


def identified_otherwise(paths: Iterable[Path], settings: Mapping[str, str]) -> list[Path]:
    """The files of devices and call overhead that were made with other settings of the target.

    `settings` are JSON, by target. The sensor's file is outdated if another device is requested.
    """
    found = []
    for path in paths:
        folder = path.parent
        try:
            stated = read_device(path).settings_json
        except OpcostError:
            continue
        if stated is None or stated == settings[folder.name]:
            continue
        found.append(path)
        if json.loads(stated)["device"] != json.loads(settings[folder.name])["device"]:
            found.append(sensor_file(folder))
    return found


def extracted_otherwise(paths: Iterable[Path], definitions: Mapping[str, str]) -> list[Path]:
    """The files of extracted models that are of another definition."""
    return [path for path in paths if _is_of_another(path, definitions[path.stem])]


def recorded_otherwise(paths: Iterable[Path], definitions: Mapping[str, str]) -> list[Path]:
    """The files of recorded calls of which the same is true, or that are of another device."""
    found = []
    for path in paths:
        try:
            device_name = read_device(device_file(path.parent.parent)).device_name
        except OpcostError:
            continue
        if _is_of_another(path, definitions[path.stem], device_name):
            found.append(path)
    return found


def _is_of_another(path: Path, definition: str, device_name: str | None = None) -> bool:
    """Whether a file of tuples is of another model or another device."""
    try:
        found = read_model_tuples(path)
    except OpcostError:  # its user reports it
        return False
    stated = found.definition.to_json() if found.definition else None
    return (stated, found.device_name) != (definition, device_name)


def _texts(path: Path, schema: pa.Schema, names: Sequence[str]) -> list[list[str | None]]:
    """Columns of a file's rows; none of an unreadable file, which its user reports."""
    try:
        rows = records.read(path, schema, names).to_pylist()
    except OpcostError:
        return []
    return [[row[name] for name in names] for row in rows]
