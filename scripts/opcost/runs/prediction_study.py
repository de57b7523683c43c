"""Studies of the operators that help predictions most: of another device, or of models to come."""

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from opcost.databases.database import read_database
from opcost.errors import OpcostError
from opcost.files import replacing
from opcost.models.configs import define_models
from opcost.planning.plan import memory_bytes
from opcost.prediction.features import SMALL, Features, features_of
from opcost.prediction.kriging import helpful
from opcost.prediction.predictor import LEAST_SHARED
from opcost.rows.comparability import kind_of
from opcost.rows.quantities import TIME
from opcost.study import load_study
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.model_tuples import ModelTuples
from opcost.tuples.tuple_record import TupleRecord

_MOST_SHARED, _MOST_SIZES, _MOST_COMPARED = 50, 400, 1000
_LEAST_SHARE = 0.001
_COLUMNS = ("tuple_id", "description", "parameters", "target", "conditions_json", "device")
_LIMITS = {True: (1e10, 2**28), False: (1e12, 2**32)}
"""FLOPs and bytes of the largest operator on a processor (True) and on a GPU."""

_OCTAVES, _OCTAVES_OF_USUAL = 2, 4
_USUAL = (
    "conv2d(8x96x28x28, 192x96x1x1)",
    "conv2d(8x96x28x28, 192x96x3x3, padding=[1,1])",
    "conv2d(8x192x28x28, 192x1x3x3, groups=192, padding=[1,1])",
    "batch_norm(8x96x28x28, 96, 96, 96, 96, cudnn_enabled=True, eps=1e-05, momentum=0.1, "
    "training=False)",
    "max_pool2d(8x96x56x56, kernel_size=[3,3], padding=[1,1], stride=[2,2])",
    "adaptive_avg_pool2d(8x512x28x28, output_size=[1,1])",
    *(f"{name}(8x96x28x28)" for name in ("relu_", "hardtanh_", "silu_", "sigmoid")),
    *(f"{name}(8x96x28x28, 8x96x28x28)" for name in ("add", "add_", "mul")),
    "cat([8x96x28x28,8x192x28x28], dim=1)",
    *(f"linear({rows}, 1000x1536, 1000)" for rows in ("8x1536", "2048x1536", "8x192x1536")),
    "matmul(8x12x192x64, 8x12x64x256)",
    "bmm(96x192x64, 96x64x256)",
    "scaled_dot_product_attention(8x12x192x64, 8x12x192x64, 8x12x192x64)",
    "softmax(8x12x192x256, dim=-1)",
    "layer_norm(8x192x768, 768, 768, normalized_shape=[768])",
    "gelu(8x192x768)",
)

_SIZE = re.compile(r"((?<=[( [])\d+(?=x))|(?<![^x(\[, =])\d+(?![\d.e])")
"""A first size (group 1), or another whole number, in a description."""


def calibration(
    target: str, databases: Iterable[Path], models: Sequence[ModelTuples]
) -> tuple[list[tuple[TupleRecord, float]], dict[str, Any]]:
    """Up to fifty tuples to measure on a target, which help most to predict all tuples there, or
    these models, from other targets of its kind of device: each with the share of the uncertainty
    that it removes; first one of each operator of the models that the target lacks. And keys of a
    study: the target with its settings, or if it is new, a GPU if there are others.

    Raises OpcostError if others have nothing, or too little, that helps.
    """
    calls = sum((Counter(each.call_counts()) for each in models), Counter[str]())
    columns = (*_COLUMNS, TIME.value)
    rows = [row for path in databases for row in read_database(path, columns).to_pylist()]
    own = {row["tuple_id"]: row for row in rows if row["target"] == target}
    kinds = [kind for row in own.values() or rows if (kind := kind_of(row))]
    kind = min(kinds, key=lambda each: each.is_processor, default=None)
    others, costs = {}, defaultdict[str, float](float)
    for row in rows:
        if row["target"] != target and row[TIME.value] and kind_of(row) == kind:
            others[row["tuple_id"]] = row
            number = calls.get(row["tuple_id"], 0) if calls else 1
            costs[row["tuple_id"]] += number * row[TIME.value]
    ordered = sorted(others.values(), key=lambda row: -costs[row["tuple_id"]])[:_MOST_COMPARED]
    isolated = [
        _isolated(row["description"], parameters=row["parameters"] or []) for row in ordered
    ]
    records = {each.operator_tuple.tuple_id: each for each in isolated if each is not None}
    known = [each for name, each in records.items() if own.get(name, {}).get(TIME.value)]
    new = {name: each for name, each in records.items() if name not in own and name in others}
    if others and not new:
        raise OpcostError(
            f"--calibrate {target}: it has all that other targets have: nothing is left to measure"
        )
    weights = np.array([costs[name] for name in new])
    if not weights.any() or len(known) + len(new) < LEAST_SHARED:
        raise OpcostError(
            f"--calibrate {target}: of the tuples that other targets of its kind of device have, "
            f"it has {len(known)}, and lacks {len(new)}{', none of these models' if new else ''}. "
            f"Two targets must share {LEAST_SHARED}, and the other one must have more: name "
            "further databases (--database)"
        )
    wanted = {each.operator_tuple.operator for model in models for each, _ in model.kernels()}
    wanted -= {each.operator_tuple.operator for each in known}
    first = {
        record.operator_tuple.operator: place  # the costliest comes first
        for place, record in reversed([*enumerate(new.values())])
        if record.operator_tuple.operator in wanted
    }
    chosen = helpful(_features(new.values()), weights, _features(known), _MOST_SHARED)
    enough = sum(share >= _LEAST_SHARE for _, share in chosen)
    shares = dict(chosen[: max(enough, LEAST_SHARED - len(known))])
    chosen = [*((place, shares.get(place, 0.0)) for place in first.values())]
    chosen += [pair for pair in shares.items() if pair[0] not in first.values()]
    chosen = chosen[:_MOST_SHARED]
    conditions = json.loads(next((row["conditions_json"] for row in own.values()), None) or "{}")
    settings = conditions.get("target", {"device": kind.name if kind else "auto"})
    study = {"targets": {target: settings}, "measurement": conditions.get("measurement", {})}
    return [([*new.values()][place], share) for place, share in chosen], study


def sizes(like: Iterable[TupleRecord], is_processor: bool) -> list[TupleRecord]:
    """Up to 400 tuples that predict most: like these, or if there are none, like usual ones, with
    sizes octaves around theirs, as far as a processor, or else a GPU, takes less than a second.
    """
    dtypes = ("float32",) if is_processor else ("float32", "bfloat16")
    usual = [(call, {"dtype": dtype}) for call in _USUAL for dtype in dtypes]
    given = [(str(each.operator_tuple), {"parameters": [*each.parameters]}) for each in like]
    octaves, calls = (_OCTAVES, given) if given else (_OCTAVES_OF_USUAL, usual)
    most_flops, most_bytes = _LIMITS[is_processor]
    draw, found = random.Random(0), {}
    for number in range(2 * _MOST_COMPARED):
        call, keys = calls[number % len(calls)]
        record = _isolated(_resized(call, octaves, draw) if number >= len(calls) else call, **keys)
        if record and (record.flops or 0) <= most_flops and memory_bytes(record) <= most_bytes:
            found[record.operator_tuple.tuple_id] = record
        if len(found) == _MOST_COMPARED:
            break
    records = list(found.values())
    chosen = helpful(_features(records), np.ones(len(records)), [], _MOST_SIZES)
    return [records[place] for place, _ in chosen]


def write_study(path: Path, records: Iterable[TupleRecord], study: Mapping[str, Any]) -> None:
    """Write a study with these keys that measures the tuples once. Raises OpcostError for a target
    or settings that no study can have.
    """
    study = {**study, "rounds": 1, "operators": "all", "torchvision": None}
    calls = [(each.operator_tuple, [*each.parameters]) for each in records]
    models = [
        {"name": f"{call.name}_{call.tuple_id}", "operator": str(call), "parameters": parameters}
        for call, parameters in calls
    ]
    load_study({**study, "models": models})
    head = yaml.safe_dump(study, default_flow_style=None, sort_keys=False)
    lines = [f"{head}models:", *(f"- {json.dumps(each)}" for each in models), ""]
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")


def _isolated(call: str, **keys: Any) -> TupleRecord | None:
    """The record of an operator without a model, with these keys; None if there can be none."""
    try:
        models = define_models("operator", {"operator": call, **keys}, Path(), call).models
        [record] = extract_model_tuples(models["operator"]).tuples
    except OpcostError:
        return None
    return record


def _features(records: Iterable[TupleRecord]) -> list[Features]:
    return [features_of(each.operator_tuple, each.flops, each.bytes) for each in records]


def _resized(description: str, octaves: int, draw: random.Random) -> str:
    """A description with sizes times powers of two: equal ones times the same, but first ones that
    equal that of the first tensor, the batch, times another; without strides.
    """
    factors = defaultdict[str, float](lambda: 2.0 ** draw.randint(-octaves, octaves))
    batch = _SIZE.search(description)

    def resized(size: re.Match[str]) -> str:
        is_batch = batch is not None and size[1] == batch[0]
        keeps = int(size[0]) <= SMALL and not is_batch
        factor = factors["batch" if is_batch else size[0]]
        return size[0] if keeps else str(max(1, int(int(size[0]) * factor)))

    return _SIZE.sub(resized, re.sub(r"@\([^)]*\)", "", description))
