"""Shows on every published weights entry of torchvision that extraction misses no arithmetic.

`weights.meta["_ops"]` are giga multiply-additions at the entry's own input size, to three decimals,
and `num_params` the number of parameters. The same holds of the models that a study chooses from
torchvision by name. Of detection only the parameters are compared: its sizes depend on values.
"""

import inspect

import pytest
from opcost.models import zoo
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.tuples.extraction import extract_model_tuples
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
    assert giga_macs(tuples) == weights.meta["_ops"]
    assert tuples.parameters == weights.meta["num_params"]


CHOSEN = zoo.select([*FAMILIES, "detection"], ["*"], 1)


@pytest.mark.parametrize("name", CHOSEN)
def test_what_a_study_chooses_is_what_torchvision_publishes(name):
    meta = models.get_model_weights(name).DEFAULT.meta
    tuples = extract_model_tuples(CHOSEN[name])
    assert tuples.parameters == meta["num_params"]
    if zoo.family(name) != "detection":
        assert giga_macs(tuples) == meta["_ops"]


def giga_macs(tuples):
    counts = tuples.call_counts()
    flops = sum(counts[key] * record.flops for key, record in tuples.by_id.items())
    return round(flops / 2e9, 3)
