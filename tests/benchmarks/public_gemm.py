"""Predictions of matrix products on public data of seven GPUs: the same GPU, and one from another.

    pip download --no-deps -d FOLDER aiconfigurator-core==0.12.0 && unzip FOLDER/*.whl -d FOLDER
    python -m tests.benchmarks.public_gemm FOLDER/aiconfigurator_core/systems/data

Times of bfloat16 linear layers in vLLM, measured by NVIDIA (aiconfigurator, Apache 2.0). Rows are
drawn at random; all others are predicted: from so many of the same GPU, or from all of another GPU
and so many that both have. Of fifty, `helpful` ones are compared with random ones. Errors are of
ln(predicted / measured), in per cent.
"""

import argparse
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from opcost.prediction.features import features_of
from opcost.prediction.kriging import helpful
from opcost.prediction.predictor import Predictor, Unpredictable
from opcost.rows.quantities import TIME
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec

from tests.benchmarks.prediction import Errors
from tests.benchmarks.prediction_splits import record_of

TESTED = 500
SAME, SHARED = (30, 100, 400), (20, 50, 200)
CANDIDATES, CHOSEN, DRAWS = 1000, 50, 10


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Rows of a GPU by tuple id, of its newest table; empty without one."""
    tables = sorted(folder.glob("gemm/vllm/*/gemm_perf.parquet"))
    if not tables:
        return {}
    table = pd.read_parquet(tables[-1]).query("gemm_dtype == 'bfloat16'")
    table = table[table["kernel_source"] == table["kernel_source"].mode()[0]]
    found = {}
    for (m, n, k), latency_ms in table.groupby(["m", "n", "k"])["latency"].median().items():
        specs = (TensorSpec((m, k), "bfloat16"), TensorSpec((n, k), "bfloat16"))
        call = OperatorTuple("aten.linear.default", (("input", specs[0]), ("weight", specs[1])))
        found[call.tuple_id] = {
            "tuple_id": call.tuple_id,
            "canonical_json": call.canonical_json,
            "flops": 2 * m * n * k,
            "bytes": 2 * (m * k + n * k + m * n),
            "flags": [],
            "time_s": latency_ms / 1e3,
        }
    return found


def main() -> None:
    """Print the errors of every GPU, and of every GPU from the H100."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folders = sorted(parser.parse_args().folder.iterdir())
    gpus = {each.name: rows for each in folders if (rows := rows_of(each))}
    for name, rows in gpus.items():
        drawn = random.Random(0).sample(sorted(rows), min(len(rows), TESTED + max(SAME)))
        tested = [rows[each] for each in drawn[:TESTED]]
        for number in SAME:
            known = [rows[each] for each in drawn[TESTED : TESTED + number]]
            print(f"{name} from {number} of its own: {within(Predictor(known, TIME, {}), tested)}")
        if name != "h100_sxm":
            there = {key: row["time_s"] for key, row in gpus["h100_sxm"].items()}
            shared = [rows[each] for each in drawn if each in there]
            for number in SHARED:
                predictor = Predictor(shared[TESTED:][:number], TIME, {}, there)
                print(f"{name} from the H100 and {number}: {within(predictor, shared[:TESTED])}")
            shared = [row for key, row in sorted(rows.items()) if key in there]
            for how, errors in chosen_and_random(shared, there).items():
                print(f"{name} from the H100 and {CHOSEN} {how}: {errors}")


def chosen_and_random(
    shared: list[Mapping[str, Any]], there: Mapping[str, float]
) -> dict[str, str]:
    """The mean errors from fifty helpful rows, and from fifty random ones, of several draws."""
    found: dict[str, list[list[float]]] = {"chosen": [], "random": []}
    for seed in range(DRAWS):
        drawn = random.Random(seed).sample(shared, min(len(shared), TESTED + CANDIDATES))
        tested, candidates = drawn[:TESTED], drawn[TESTED:]
        calls = [record_of(row).operator_tuple for row in candidates]
        features = [
            features_of(call, row["flops"], row["bytes"])
            for call, row in zip(calls, candidates, strict=True)
        ]
        weights = np.array([there[row["tuple_id"]] for row in candidates])
        places = [place for place, _ in helpful(features, weights, [], CHOSEN)]
        sets = {"chosen": [candidates[n] for n in places], "random": candidates[:CHOSEN]}
        for how, known in sets.items():
            errors = within(Predictor(known, TIME, {}, there), tested)
            logs, times_s = np.array(errors.logs), np.array([row["time_s"] for row in tested])
            found[how].append(
                [
                    float(np.median(np.abs(logs))),
                    float(np.average(np.abs(logs), weights=times_s)),
                    abs(math.log(np.average(np.exp(logs), weights=times_s))),
                    float(np.mean(np.abs(logs) <= errors.halves)),
                ]
            )
    return {
        how: "median {:.1%}, weighted by time {:.1%}, total {:.1%}; {:.0%} hold".format(
            *np.mean(values, axis=0)
        )
        for how, values in found.items()
    }


def within(predictor: Predictor, tested: list[Mapping[str, Any]]) -> Errors:
    """The errors; sizes beyond those measured are refused and counted."""
    errors = Errors()
    for row in tested:
        try:
            cost = predictor.predict(record_of(row)).cost
        except Unpredictable:
            errors.refused += 1
            continue
        errors.add(cost.value, row["time_s"], math.log(cost.high / cost.value))
    return errors


if __name__ == "__main__":
    main()
