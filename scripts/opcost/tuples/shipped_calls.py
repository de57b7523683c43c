"""The calls of torchvision's classification models, which come with opcost: without PyTorch, and in
milliseconds.

The file has the documents of each model (model_tuples.py) for three batch sizes. Others follow:
each number is the same in two of them, or a linear function of the batch size. Batch size 1 is
apart, because dimensions of size 1 have no strides.
"""

import json
import zipfile
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from opcost.models.definition import ModelDefinition
from opcost.models.zoo import has_official_inputs
from opcost.tuples.model_tuples import ModelTuples, from_document, to_document

SHIPPED = Path(__file__).with_name("torchvision_calls.zip")
BATCHES = (1, 2, 4)
VERSIONS = "versions.json"
"""Its entry with the versions of torch and torchvision that made the calls."""


def shipped_calls(definition: ModelDefinition) -> ModelTuples | None:
    """The calls of a model, or None if they are not shipped: those of classification models of
    torchvision on official inputs of any batch size, in float32 and inference. PyTorch must be of
    the version that made them, or not installed.
    """
    batch, name = definition.batch_size, definition.model
    official = has_official_inputs(definition) and not definition.arguments
    plain = official and definition.dtype is None and definition.memory_format == "contiguous"
    if not plain or definition.trains or definition.autocast or batch is None or name is None:
        return None
    documents = _documents(name)
    if documents is None:
        return None
    one, two, four = documents
    document = one if batch == 1 else at_batch(two, four, batch)
    document |= {"model": definition.name, "definition": definition.to_json()}
    return from_document(_distinct(document), SHIPPED, "install opcost again")


def at_batch(two: Any, four: Any, batch: int) -> Any:
    """What JSON data of batch sizes 2 and 4 are at another, where numbers are linear functions of
    it. Raises ValueError for data that differ in anything else.
    """
    if isinstance(two, dict) and isinstance(four, dict) and two.keys() == four.keys():
        return {key: at_batch(value, four[key], batch) for key, value in two.items()}
    if isinstance(two, list) and isinstance(four, list) and len(two) == len(four):
        return [at_batch(*pair, batch) for pair in zip(two, four, strict=True)]
    if two == four:
        return two
    if type(two) is int and type(four) is int and (four - two) % 2 == 0:
        return two + (four - two) // 2 * (batch - 2)
    raise ValueError(f"{two!r} at batch size 2, {four!r} at 4: no linear function")


def packed(tuples: ModelTuples) -> dict[str, Any]:
    """A model as it is shipped: its document, without what depends on the run, and with operators
    as JSON data.
    """
    document = to_document(tuples)
    records = [
        record | {"canonical_json": json.loads(record["canonical_json"])}
        for record in document["tuples"]
    ]
    return document | {"tuples": records, "definition": None, "extraction_s": None}


def _distinct(document: dict[str, Any]) -> dict[str, Any]:
    """With operators as text, and tuples that are the same at this batch size once."""
    places: dict[str, int] = {}
    records: list[dict[str, Any]] = []
    renamed: list[int] = []
    for record in document["tuples"]:
        text = json.dumps(record["canonical_json"], separators=(",", ":"), sort_keys=True)
        renamed.append(places.setdefault(text, len(records)))
        if renamed[-1] == len(records):
            records.append(record | {"canonical_json": text})
    calls = [[renamed[position], *place] for position, *place in document["calls"]]
    return document | {"tuples": records, "calls": calls}


@cache
def _versions_agree() -> bool:
    with zipfile.ZipFile(SHIPPED) as shipped:
        versions = json.loads(shipped.read(VERSIONS))
    try:
        return {name: metadata.version(name).partition("+")[0] for name in versions} == versions
    except metadata.PackageNotFoundError:
        return True


def _documents(model: str) -> Sequence[dict[str, Any]] | None:
    if not SHIPPED.exists() or not _versions_agree():
        return None
    with zipfile.ZipFile(SHIPPED) as shipped:
        if model not in shipped.namelist():
            return None
        documents: list[dict[str, Any]] = json.loads(shipped.read(model))
        return documents
