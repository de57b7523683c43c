"""Are the extracted training steps of torchvision's models complete, and do all tuples run again?

For each model, the FLOPs of the extracted tuples are compared with a second count of a step
(tests/products.py), and each tuple that launches a kernel is replayed from
its JSON, with the recorded shapes of its results.

    PYTHONPATH=scripts python -m tests.benchmarks.training_steps [--no-replay] [MODEL ...]
"""

import argparse
from dataclasses import replace

import torch
from opcost.devices.target_device import open_device
from opcost.measuring.workload import operator_workload
from opcost.models import construction
from opcost.models.definition import InputSpec, ModelDefinition, Training
from opcost.models.iteration import runnable
from opcost.target import Target
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.operator_tuple import OperatorTuple

from tests.products import Products

MODELS = [
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s"),
    *("googlenet", "inception_v3", "maxvit_t", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_small"),
    *("regnet_y_400mf", "resnet18", "resnet50", "resnext50_32x4d", "shufflenet_v2_x1_0"),
    *("squeezenet1_1", "swin_t", "swin_v2_t", "vgg11_bn", "vit_b_32", "wide_resnet50_2"),
]
SIZES = {"inception_v3": 299, "vit_b_32": 224, "maxvit_t": 224}
ARGUMENTS = {"googlenet": {"init_weights": False}, "inception_v3": {"init_weights": False}}
CLASSES = 1000
BATCH = 2


def definition_of(name: str) -> ModelDefinition:
    """A step with AdamW on images of the smallest size that suits the model."""
    size = SIZES.get(name, 64)
    return ModelDefinition(
        name,
        (InputSpec((BATCH, 3, size, size)),),
        model=name,
        arguments=ARGUMENTS.get(name),
        mode="training",
        training=Training(
            "cross_entropy", {}, (InputSpec((BATCH,), "int64", CLASSES),), None, "AdamW"
        ),
    )


def counted_flops(definition: ModelDefinition) -> int:
    """FLOPs of a step as the second count finds them."""
    module = construction.build(definition)
    run = runnable(module, definition, construction.example_further_inputs(definition))
    with torch.enable_grad(), Products() as products:
        run(*construction.example_inputs(definition).args)
    return products.flops


def main() -> None:
    """Print a line for each model, and how many agree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--no-replay", action="store_true")
    arguments = parser.parse_args()
    device = open_device(Target("cpu", 1, False))
    equal = 0
    replayed: set[str] = set()
    failed: dict[str, str] = {}
    for name in arguments.models:
        definition = definition_of(name)
        found = extract_model_tuples(definition)
        flops = sum(count * (record.flops or 0) for record, count in found.kernels())
        counted = counted_flops(definition)
        equal += flops == counted
        print(f"{name}: {len(found.calls)} calls, {flops} FLOPs, counted {counted}", flush=True)
        for record, _ in [] if arguments.no_replay else found.kernels():
            json = record.operator_tuple.canonical_json
            if json in replayed or json in failed:
                continue
            again = replace(record, operator_tuple=OperatorTuple.from_json(json))
            try:
                operator_workload(again, device, "warm", 0).run(2)
                replayed.add(json)
            except Exception as error:
                failed[json] = f"{type(error).__name__}: {error}"
                print(f"  {record.operator_tuple}: {failed[json]}", flush=True)
    print(f"FLOPs equal: {equal} of {len(arguments.models)} models")
    print(f"replayed: {len(replayed)} of {len(replayed) + len(failed)} tuples")


if __name__ == "__main__":
    main()
