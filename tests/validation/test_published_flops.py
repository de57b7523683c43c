"""Shows on every published weights entry of torchvision that extraction misses no arithmetic.

`weights.meta["_ops"]` are giga multiply-additions at the entry's own input size, to three decimals,
and `num_params` the number of parameters. Detection is left out: its sizes depend on values.
"""

import inspect

import pytest
from opcost.extraction import extract_model_tuples
from opcost.study import InputSpec, ModelDefinition
from torchvision import models

pytestmark = pytest.mark.slow

FAMILIES = {
    "classification": models,
    "segmentation": models.segmentation,
    "video": models.video,
    "optical_flow": models.optical_flow,
}


def entries():
    for family, module in FAMILIES.items():
        for name in models.list_models(module=module):
            for weights in models.get_model_weights(name):
                yield pytest.param(family, name, weights, id=str(weights))


def official_inputs(family, weights):
    transforms = weights.transforms()
    match family:
        case "classification":
            [size] = transforms.crop_size
            return (InputSpec((1, 3, size, size)),)
        case "segmentation":
            [size] = transforms.resize_size
            return (InputSpec((1, 3, size, size)),)
        case "video":
            height, width = transforms.crop_size
            return (InputSpec((1, 3, 16, height, width)),)
        case "optical_flow":
            return (InputSpec((1, 3, 512, 512)), InputSpec((1, 3, 512, 512)))


def official_arguments(family, name, weights):
    """What the published architecture has beyond the model's defaults."""
    arguments = {}
    categories = weights.meta.get("categories")
    if categories:
        arguments["num_classes"] = len(categories)
    if name == "googlenet":
        arguments["aux_logits"] = False
    if name in ("googlenet", "inception_v3"):
        arguments["init_weights"] = False
    if name.startswith("vit_"):
        [arguments["image_size"]] = weights.transforms().crop_size
    constructor = models.get_model_builder(name)
    if family == "segmentation" and "aux_loss" in inspect.signature(constructor).parameters:
        arguments["aux_loss"] = True
    return arguments


@pytest.mark.parametrize(("family", "name", "weights"), list(entries()))
def test_flops_and_parameters_are_the_published_ones(family, name, weights):
    definition = ModelDefinition(
        name,
        official_inputs(family, weights),
        model=name,
        arguments=official_arguments(family, name, weights),
    )
    tuples = extract_model_tuples(definition)
    counts = tuples.call_counts()
    flops = sum(counts[key] * record.flops for key, record in tuples.by_id.items())
    assert round(flops / 2e9, 3) == weights.meta["_ops"]
    assert tuples.parameters == weights.meta["num_params"]
