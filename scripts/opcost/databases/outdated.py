"""Which measurements are of other settings or models than a study's today.

Snakemake knows what it started with which parameters, but not what rows were measured under if its
own records are gone, or if the rows were copied here. The rows know it.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from opcost.databases.earlier import EarlierRows
from opcost.errors import OpcostError
from opcost.results_folder import target_of
from opcost.rows import records, schemas
from opcost.tuples.model_tuples import read_model_tuples


def operators_measured_otherwise(
    paths: Sequence[Path], conditions: Mapping[str, str], database: Path
) -> list[Path]:
    """Those files of operators whose row was measured under other conditions than today's.

    `conditions` are JSON, by target. What has not changed since `database` was made is not read.
    A file that cannot be read is not among the answer.
    """
    earlier = EarlierRows(database, paths)
    stated = {}
    if earlier.same:
        texts = records.read(database, schemas.DATABASE, ["conditions_json"])["conditions_json"]
        stated = {path: texts[earlier.numbers[path]].as_py() for path in earlier.same}
    for path in paths:
        if path not in stated:
            for [text] in _texts(path, schemas.OPERATOR, ["conditions_json"]):
                stated[path] = text
    return [path for path, text in stated.items() if text != conditions[target_of(path)]]


def models_measured_otherwise(
    paths: Sequence[Path], conditions: Mapping[str, str], definitions: Mapping[str, str]
) -> list[Path]:
    """Those files of models whose row is of another definition, or of other conditions."""
    names = ["conditions_json", "definition_json"]
    return [
        path
        for path in paths
        for found in _texts(path, schemas.MODEL, names)
        if found != [conditions[target_of(path)], definitions[path.stem]]
    ]


def extracted_otherwise(paths: Iterable[Path], definitions: Mapping[str, str]) -> list[Path]:
    """Those files of extracted models that are of another definition than today's."""
    found = []
    for path in paths:
        try:
            definition = read_model_tuples(path).definition
        except OpcostError:
            continue
        if definition is None or definition.to_json() != definitions[path.stem]:
            found.append(path)
    return found


def _texts(path: Path, schema: pa.Schema, names: Sequence[str]) -> list[list[str | None]]:
    """Columns of a file's rows; none of a file that cannot be read: who needs it says why."""
    try:
        rows = records.read(path, schema, names).to_pylist()
    except OpcostError:
        return []
    return [[row[name] for name in names] for row in rows]
