"""How much of a model do its operators explain, cold and warm? Measured pairwise, on this CPU.

A machine's speed changes within seconds, so a sum and a whole that were measured minutes apart
cannot be compared to a few per cent. Here each operator tuple is timed between two timings of the
whole model, and only the ratio is kept. The sum of calls x ratio is sum / whole.

    PYTHONPATH=scripts python tests/benchmarks/cold_and_warm.py [--rounds 3] [MODEL CONFIG ...]
"""

import argparse
import random
import statistics
from functools import partial
from pathlib import Path

import torch
from opcost import models, protocol
from opcost.benchmark import CACHES_PER_FOOTPRINT, ModelWorkload, OperatorWorkload
from opcost.device import open_device
from opcost.extraction import extract_model_tuples
from opcost.operands import operand_sets
from opcost.study import Target, load_model

DIRECTORY = Path("config/models")
SCHEMA = Path("workflow/schemas/model.schema.yaml")
SLICE_S = 0.06
DEFAULT = ["resnet34_56", "alexnet_224", "mobilenet_v2_224"]


def iteration_s(workload, device):
    """Seconds per iteration: the median of five timings that fill a slice together."""
    rough_s = protocol.calibrate(workload, device, SLICE_S / 10)
    iterations = max(1, round(SLICE_S / 5 / rough_s))
    times = [device.time(partial(workload.run, iterations)).device_s for _ in range(5)]
    return statistics.median(times) / iterations


def one_round(tuples, whole, device, footprint_bytes, generator):
    """Sum / whole of one round, by cache state, and the spread of the whole's own timings."""
    counts = tuples.call_counts()
    records = [record for record in tuples.tuples if record.launches_kernel]
    generator.shuffle(records)
    sums, wholes = {"cold": 0.0, "warm": 0.0}, []
    for record in records:
        operator_tuple = record.operator_tuple
        for state, footprint in (("cold", footprint_bytes), ("warm", 0)):
            workload = OperatorWorkload(operand_sets(operator_tuple, device, footprint, 0))
            before_s = iteration_s(whole, device)
            operator_s = iteration_s(workload, device)
            after_s = iteration_s(whole, device)
            wholes += [before_s, after_s]
            share = operator_s / ((before_s + after_s) / 2)
            sums[state] += counts[operator_tuple.tuple_id] * share
    return sums, statistics.stdev(wholes) / statistics.median(wholes)


def main():
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=DEFAULT)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    device = open_device(Target("cpu", 1, False))
    footprint_bytes = CACHES_PER_FOOTPRINT * (device.last_level_cache_bytes or 2**26)
    generator = random.Random(0)
    print(f"{device.model_name}, torch {torch.__version__}, one thread")
    for name in arguments.models:
        definition = load_model(name, DIRECTORY, SCHEMA)
        tuples = extract_model_tuples(definition, DIRECTORY)
        with models.inference_conditions():
            module = models.build(definition, DIRECTORY)
            whole = ModelWorkload(module, [models.example_inputs(definition)])
            rounds = [
                one_round(tuples, whole, device, footprint_bytes, generator)
                for _ in range(arguments.rounds)
            ]
        for state in ("cold", "warm"):
            ratios = sorted(sums[state] for sums, _ in rounds)
            shown = " ".join(f"{ratio:.3f}" for ratio in ratios)
            print(f"{name:20} {state}  sum/whole {statistics.median(ratios):.3f}  ({shown})")
        spread = statistics.median(spread for _, spread in rounds)
        print(f"{name:20} the whole model's own timings meanwhile: {spread:.0%} (SD)", flush=True)


if __name__ == "__main__":
    main()
