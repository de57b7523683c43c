"""The text of a module of torchvision says what it is, so that published logs can be imported."""

import pytest
from opcost.imports.importer import module_of
from opcost.imports.layouts import Undetermined
from opcost.models.construction import without_initialisation
from torch import nn
from torchvision import models

pytestmark = pytest.mark.slow


def facts(module):
    """All that a leaf module's forward depends on, but for values."""
    attributes = {
        name: value
        for name, value in vars(module).items()
        # Linear has a `stddev` in GoogLeNet: how it was initialised.
        if not name.startswith("_") and name != "stddev" and not callable(value)
    }
    held = [*module._parameters.items(), *module._buffers.items()]
    return attributes, [(name, value is not None and value.shape) for name, value in held]


def leaves(name):
    initialised = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    for module in models.get_model_builder(name)(**initialised).modules():
        from_torch = type(module).__module__.startswith("torch.")
        if from_torch and not isinstance(module, nn.Sequential) and not list(module.children()):
            yield module


@pytest.mark.parametrize("name", models.list_models(module=models))
def test_parameters_that_a_text_leaves_out_have_their_defaults(name):
    with without_initialisation():
        for module in leaves(name):
            try:
                from_text = module_of(repr(module))
            except Undetermined:
                assert isinstance(module, nn.Hardswish)
            else:
                assert facts(from_text) == facts(module)
