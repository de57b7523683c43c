"""The ratios of estimate and end-to-end of the models that were measured with a database.

They are metadata of its file, JSON under `opcost.model_ratios`: target, or conditions_id in a
merged database -> model, whether it trains, ln(estimate / end-to-end) of time and energy, when it
was measured, and its calls by tuple id. The model error follows from them when an estimate is read
(`noise`), so that no row depends on models.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

from opcost.databases import collection
from opcost.errors import OpcostError
from opcost.files import parse_json
from opcost.rows.runs import ModelRatio
from opcost.values import shown

_KEY = "opcost.model_ratios"

Ratios = Mapping[str, Sequence[ModelRatio]]


def metadata(ratios: Ratios) -> dict[str, str]:
    """The metadata of a database."""
    document = {name: [astuple(each) for each in found] for name, found in sorted(ratios.items())}
    return {_KEY: json.dumps(document)}


def read_ratios(path: Path) -> dict[str, list[ModelRatio]]:
    """The ratios in a database, possibly none. Raises OpcostError for damaged ones."""
    text, remedy = collection.metadata_of(path).get(_KEY, "{}"), "make the database again"
    document = parse_json(text, what := f"{path}: its ratios of models", remedy)
    try:
        return {name: [ModelRatio(*each) for each in found] for name, found in document.items()}
    except TypeError:
        raise OpcostError(f"{what} are {shown(document)}, which is impossible: {remedy}") from None


def united(ratios: Iterable[tuple[str, Sequence[ModelRatio]]]) -> dict[str, list[ModelRatio]]:
    """The ratios of several databases by conditions_id, in whatever order: of one model, the one
    that was measured last (of ratios without a date, one of them).
    """
    found: dict[str, dict[tuple[str, bool], ModelRatio]] = {}
    for name, each in ratios:
        of_models = found.setdefault(name, {})
        for ratio in each:
            key = (ratio.model, ratio.trains)
            of_models[key] = max(ratio, of_models.get(key, ratio), key=_age)
    return {name: [each[key] for key in sorted(each)] for name, each in found.items()}


def _age(ratio: ModelRatio) -> tuple[str, str]:
    return ratio.measured_at or "", repr(ratio)
