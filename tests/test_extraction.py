"""A model's operators: all of them, counted, with the place of each call."""

import sys
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
import torchvision
from opcost.errors import OpcostError
from opcost.models.construction import build, parameter_dtypes
from opcost.models.definition import InputSpec, ModelDefinition, Training
from opcost.models.inputs import example_inputs
from opcost.tuples.calls import model_calls, module_calls
from opcost.tuples.extraction import extract_model_tuples, extract_module_tuples
from opcost.tuples.model_tuples import read_model_tuples, write_model_tuples
from torch import nn


def torchvision_model(name, size=224, **arguments):
    return ModelDefinition(
        name, (InputSpec((1, 3, size, size)),), model=name, arguments=arguments or None
    )


def calls_of(module, *shapes):
    return module_calls(module.eval(), [torch.randn(shape) for shape in shapes], "model").calls


def counts(calls):
    """(calls, distinct tuples) of each operator."""
    total = Counter(call.operator_tuple.name for call in calls)
    tuples = {call.operator_tuple for call in calls}
    distinct = Counter(operator_tuple.name for operator_tuple in tuples)
    return {name: (total[name], distinct[name]) for name in total}


def test_resnet18_executes_what_its_architecture_says():
    assert counts(model_calls(torchvision_model("resnet18")).calls) == {
        "conv2d": (20, 11),
        "batch_norm": (20, 5),
        "relu_": (17, 5),
        "add_": (8, 4),
        "max_pool2d": (1, 1),
        "adaptive_avg_pool2d": (1, 1),
        "flatten": (1, 1),
        "linear": (1, 1),
    }


def test_a_live_module_executes_what_its_definition_says_and_stays_as_it_is():
    module = torchvision.models.resnet18().train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    found = extract_module_tuples(module, [torch.randn(1, 3, 224, 224)], "resnet18")
    expected = extract_model_tuples(torchvision_model("resnet18"))
    assert (found.tuples, found.calls) == (expected.tuples, expected.calls)
    assert found.parameters == expected.parameters
    assert module.training
    for name, tensor in module.state_dict().items():
        assert type(tensor) is torch.Tensor
        assert torch.equal(tensor, before[name])


MIXED = """
import torch
from torch import nn

class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm = nn.Linear(8, 8).bfloat16(), nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(self.body(x.bfloat16()).float())

class Float8(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.randn(8, 8).to(torch.float8_e4m3fn))

    def forward(self, x):
        return x @ self.w.to(x.dtype)

class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 8, dtype=torch.complex64))

    def forward(self, x):
        return x @ self.w

def half(): return nn.Linear(8, 8).half()
def bfloat16(): return nn.Linear(8, 8).bfloat16()
def double(): return nn.Linear(8, 8).double()
"""


@pytest.mark.parametrize(
    ("factory", "dtype", "given", "kept", "inputs", "product"),
    [
        ("bfloat16", None, None, "bfloat16", "2x8", "linear(2x8:bfloat16, 8x8:bfloat16"),
        ("half", None, None, "float16", "2x8", "linear(2x8:float16, 8x8:float16"),
        ("double", None, None, "float64", "2x8", "linear(2x8:float64, 8x8:float64"),
        ("double", "float32", None, "float32", "2x8", "linear(2x8, 8x8"),
        ("Mixed", None, None, "bfloat16, float32", "2x8:bfloat16", "linear(2x8:bfloat16, 8x8:bf"),
        ("Mixed", None, "float32", "bfloat16, float32", "2x8:float32", "linear(2x8:bfloat16, 8x"),
        ("Float8", None, None, "float8_e4m3fn", "2x8:float32", "matmul(2x8, 8x8"),
        ("Float8", "float32", None, "float32", "2x8", "matmul(2x8, 8x8"),
        ("Complex", None, "complex64", "complex64", "2x8:complex64", "matmul(2x8:complex64, 8x8:c"),
    ],
)
def test_parameters_stay_as_they_are_built_unless_a_dtype_is_stated(
    tmp_path, factory, dtype, given, kept, inputs, product
):
    (tmp_path / "mixed_types.py").write_text(MIXED)
    spec, named = InputSpec((2, 8), given), f"mixed_types:{factory}"
    definition = ModelDefinition("net", (spec,), factory=named, dtype=dtype)
    found = extract_model_tuples(definition, tmp_path)
    assert (found.precision, *map(str, found.inputs)) == (kept, inputs)
    assert any(str(record.operator_tuple).startswith(product) for record in found.tuples)
    write_model_tuples(tmp_path / "net.pkl", found)
    assert read_model_tuples(tmp_path / "net.pkl") == found
    module = build(definition, tmp_path)
    stated = definition.stating(parameter_dtypes(module))
    with torch.inference_mode():  # PyTorch accepts these dtypes
        module(*example_inputs(stated).args)


@pytest.mark.parametrize(
    ("module", "dtypes"),
    [
        (nn.Linear(8, 4).half(), "float16, float32"),
        (nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 4).double()), "float32, float64"),
    ],
)
def test_a_product_of_two_dtypes_is_refused_as_pytorch_does(module, dtypes):
    with pytest.raises(RuntimeError, match="dtype"):
        module(torch.ones(2, 8))
    with pytest.raises(OpcostError, match=f"linear takes tensors of one dtype, and gets {dtypes}"):
        extract_module_tuples(module, [torch.ones(2, 8)], "net")


def test_training_in_float16_is_refused_also_if_the_model_is_built_so(tmp_path):
    (tmp_path / "mixed_types.py").write_text(MIXED)
    training = Training("mse_loss", {}, (InputSpec((2, 8)),))
    definition = ModelDefinition(
        "net", (InputSpec((2, 8)),), factory="mixed_types:half", mode="training", training=training
    )
    with pytest.raises(OpcostError, match="needs its gradients scaled"):
        extract_model_tuples(definition, tmp_path)
    trained = extract_model_tuples(replace(definition, dtype="bfloat16"), tmp_path)
    assert trained.precision == "bfloat16"


class Keeps(nn.Module):
    """Keeps what it computed."""

    def __init__(self, **kept):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
        vars(self.a).update(kept)

    def forward(self, x):
        self.last = {"of": [self.a(x)]}
        return self.b(self.last["of"][0])


def after_a_step():
    net = Keeps()
    net(torch.ones(2, 8)).sum().backward()
    return net


def on_meta():
    with torch.device("meta"):
        return Keeps()


@pytest.mark.parametrize(
    "make",
    [
        after_a_step,
        on_meta,
        lambda: Keeps(act=lambda x: x.relu(), generator=torch.Generator()),
        lambda: Keeps(view=torch.ones(2, requires_grad=True) * 2),
        lambda: Keeps().double(),
        lambda: Keeps().train(),
    ],
)
def test_a_live_module_is_described_whatever_it_holds(make):
    net = make()
    first = net.a.weight
    x = torch.ones(2, 8, device=first.device, dtype=first.dtype)
    held = net.last["of"][0] if hasattr(net, "last") else None
    found = extract_module_tuples(net, [x], "net")
    assert sum(record.flops for record, _ in found.kernels()) == 2 * 2 * 8 * 16 + 2 * 2 * 16 * 4
    assert found.parameters == 212
    assert net.a.weight is first
    assert held is (net.last["of"][0] if hasattr(net, "last") else None)


def test_weights_that_an_older_weight_norm_computes_are_copied():
    with pytest.warns(FutureWarning):
        net = nn.Sequential(nn.utils.weight_norm(nn.Linear(8, 16)), nn.Linear(16, 4))
    kept = net[0].weight
    names = [each.operator_tuple.name for each in extract_module_tuples(net, [X], "net").tuples]
    assert names == ["_weight_norm", "linear", "linear"]
    assert net[0].weight is kept


X = torch.ones(2, 8)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (threading.Lock(), "lock"),
        (threading.local(), "_local"),
        ((each for each in ()), "generator"),
        (sys.__stdout__, "TextIO"),
    ],
)
def test_an_attribute_that_cannot_be_copied_is_named(value, kind):
    with pytest.raises(OpcostError, match=f"model net: its attribute a.kept, a .*{kind}"):
        extract_module_tuples(Keeps(kept=value), [X], "net")


def test_shared_parameters_count_once(tmp_path):
    (tmp_path / "tied.py").write_text(
        "from torch import nn\n"
        "class Tied(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.words, self.head = nn.Embedding(50, 8), nn.Linear(8, 50, bias=False)\n"
        "        self.head.weight = self.words.weight\n"
        "    def forward(self, ids): return self.head(self.words(ids))\n"
    )
    definition = ModelDefinition("m", (InputSpec((2,), "int64", 50),), factory="tied:Tied")
    executed = model_calls(definition, tmp_path)
    assert executed.parameters == dict.fromkeys(["", "words", "head"], 50 * 8)
    assert [call.parameters for call in executed.calls] == [("weight",), ("weight",)]


def test_fake_tensors_see_the_calls_of_a_real_run():
    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    model = torchvision.models.mobilenet_v3_small(weights=None).eval()
    image = torch.randn(1, 3, 64, 64)
    with torch.inference_mode(), Recorder() as recorder:
        model(image)
    fake = model_calls(torchvision_model("mobilenet_v3_small", 64)).calls
    assert [call.operator_tuple.operator for call in fake] == recorder.names


def test_calls_know_their_module():
    calls = model_calls(torchvision_model("resnet18", 64)).calls
    places = {(call.operator_tuple.name, *call.place[:2]) for call in calls}
    assert ("conv2d", "layer1.0.conv1", "Conv2d") in places
    assert ("add_", "layer1.0", "BasicBlock") in places  # the residual addition, in no leaf module
    assert ("flatten", "", "ResNet") in places


def early_exit(*_):
    raise ValueError("early exit")


class Attempts(nn.Module):
    """Goes on after a part of it has raised; `raises` prepares the part."""

    def __init__(self, raises):
        super().__init__()
        self.part = nn.Sequential(nn.Sequential(nn.Linear(4, 4)))
        self.head = nn.Linear(4, 2)
        raises(self.part[0])

    def forward(self, x):
        with suppress(ValueError, RuntimeError):
            self.part(x)
        return self.head(x * 2)


@pytest.mark.parametrize(
    "raises",
    [
        lambda part: part.append(nn.Linear(5, 5)),
        lambda part: part.register_forward_pre_hook(early_exit),
        lambda part: part.register_forward_hook(early_exit),
        lambda part: part[0].register_forward_hook(early_exit),
        lambda part: setattr(part[0], "forward", early_exit),
    ],
    ids=["sizes", "hook before", "hook after", "inner hook", "forward"],
)
def test_after_a_module_has_raised_calls_belong_to_the_one_that_goes_on(raises):
    places = [
        (call.operator_tuple.name, call.place[0]) for call in calls_of(Attempts(raises), (3, 4))
    ]
    assert places[-2:] == [("mul", ""), ("linear", "head")]


def test_a_call_of_a_shared_module_has_the_path_inside_its_caller():
    shared = nn.Linear(4, 4)
    model = nn.ModuleDict({"enc": nn.Sequential(shared), "dec": nn.Sequential(nn.ReLU(), shared)})
    model.forward = lambda x: model["dec"](model["enc"](x))
    assert [call.place[0] for call in calls_of(model, (3, 4))] == ["enc.0", "dec.0", "dec.1"]


def test_modules_of_other_threads_leave_places_as_they_are():
    other, halt = nn.Sequential(nn.Linear(4, 4)), threading.Event()

    def run():
        with torch.inference_mode():
            while not halt.is_set():
                other(torch.ones(1, 4))

    thread = threading.Thread(target=run)
    thread.start()
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4)) for _ in range(50)))
    try:
        paths = [call.place[0] for call in calls_of(model, (1, 4))]
    finally:
        halt.set()
        thread.join()
    assert paths == [f"{number}.0" for number in range(50)]


@pytest.mark.parametrize(
    ("forward", "kind"),
    [(lambda x: (x * n for n in range(3)), "generator"), (lambda x: map(abs, x), "map")],
)
def test_a_forward_that_computes_only_when_its_result_is_read_is_refused(forward, kind):
    model = nn.Identity()
    model.forward = forward
    with pytest.raises(OpcostError, match=f"its forward returned a {kind}, .*: return a tensor"):
        calls_of(model, (3, 4))


def test_an_operator_that_may_not_be_called_is_named_with_its_module_and_the_guide():
    library = torch.library.Library("mylib", "DEF")
    library.define("scale(Tensor x) -> Tensor")
    library.impl("scale", lambda x: x * 2, "CompositeExplicitAutograd")

    class Scale(nn.Module):
        def forward(self, x):
            return torch.ops.mylib.scale(x)

    message = (
        r"in '0' \(Scale\): mylib.scale.default: only operators of aten and torchvision can be "
        r"replayed. To allow it, see docs/how_to/operators.md"
    )
    with pytest.raises(OpcostError, match=message):
        extract_module_tuples(nn.Sequential(Scale()), [torch.ones(2)], "model")


def test_functional_calls_and_every_input_are_seen():
    class Join(nn.Module):
        def forward(self, left, right):
            return torch.cat([torch.relu(left), right], dim=1)

    calls = calls_of(Join(), (2, 3), (2, 5))
    assert [str(call.operator_tuple) for call in calls] == ["relu(2x3)", "cat([2x3,2x5], dim=1)"]
    assert calls[1].outputs[0].shape == (2, 8)


def test_attention_is_made_of_its_operators():
    layer = nn.TransformerEncoderLayer(16, nhead=2, batch_first=True)
    names = counts(calls_of(layer, (2, 5, 16)))
    assert names["scaled_dot_product_attention"] == (1, 1)
    assert "_transformer_encoder_layer_fwd" not in names


@pytest.mark.parametrize(
    ("operation", "launches"),
    [
        (lambda x: x.permute(1, 0), False),
        (lambda x: x[1:].unsqueeze(0), False),
        (lambda x: x.reshape(16), False),
        (lambda x: x.t().reshape(16), True),
        (lambda x: x.t().contiguous(), True),
        (lambda x: x.to(torch.float32), False),
        (lambda x: x.to(torch.float64), True),
        (lambda x: nn.functional.dropout(x, training=False), False),
        (lambda x: nn.functional.dropout(x, training=False, inplace=True), False),
        (lambda x: torch.empty(3), False),
        (lambda x: x[:0].relu(), False),
        (lambda x: x.relu_(), True),
        (lambda x: x.clone(), True),
    ],
)
def test_views_are_told_apart_by_what_they_share(operation, launches):
    class Apply(nn.Module):
        def forward(self, x):
            return operation(x)

    assert calls_of(Apply(), (4, 4))[-1].launches_kernel is launches


def test_channels_last_is_seen_in_the_tuples():
    definition = ModelDefinition(
        "m", (InputSpec((2, 3, 64, 64)),), model="resnet18", memory_format="channels_last"
    )
    first = model_calls(definition).calls[0].operator_tuple
    layouts = {name: spec.layout for name, spec in first.tensors}
    assert layouts == {"input": "channels_last", "weight": "channels_last"}


def test_building_draws_no_weights_and_leaves_torch_as_it_was():
    state = torch.random.get_rng_state()
    initialise = nn.init.kaiming_uniform_
    model_calls(torchvision_model("resnet18", 64))
    assert nn.init.kaiming_uniform_ is initialise
    assert torch.equal(torch.random.get_rng_state(), state)


def test_results_whose_sizes_depend_on_values_are_those_of_the_seed(tmp_path):
    (tmp_path / "choosy.py").write_text(
        "from torch import nn\n"
        "class Positive(nn.Module):\n"
        "    def forward(self, x): return x[x > 0].exp() + x.exp().sum()\n"
    )
    definition = ModelDefinition("m", (InputSpec((99,)),), factory="choosy:Positive")
    tuples = extract_model_tuples(definition, tmp_path).tuples
    positive = int((example_inputs(definition).args[0] > 0).sum())
    flagged = {
        record.operator_tuple.name: record.outputs[0].shape
        for record in tuples
        if record.value_dependent
    }
    assert flagged == {"index": (positive,), "exp": (positive,), "add": (positive,)}
    [exp] = [record for record in tuples if str(record.operator_tuple) == "exp(99)"]
    assert not exp.value_dependent


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (torchvision_model("resnet43"), "no model 'resnet43'. Did you mean 'resnet34'"),
        (torchvision_model("resnet18", 64, wdith=3), "cannot be built with arguments"),
        (ModelDefinition("m", (InputSpec((1, 4, 64, 64)),), model="resnet18"), "'conv1' (Conv2d)"),
        (ModelDefinition("m", (InputSpec((1,)),), factory="nowhere:f"), "cannot import 'nowhere'"),
        (
            ModelDefinition("m", (InputSpec((1,)),), factory="torch.nn:Liner"),
            "no callable 'Liner'. Did you mean 'Linear'",
        ),
        (
            ModelDefinition("m", (InputSpec((1,)),), factory="builtins:dict"),
            "returned a dict; it must return an nn.Module",
        ),
        (torchvision_model("quantized_resnet18"), "quantised models are not supported"),
    ],
    ids=["name", "argument", "shape", "module", "attribute", "not a module", "quantised"],
)
def test_what_cannot_be_extracted_is_explained(definition, message):
    with pytest.raises(OpcostError) as caught:
        model_calls(definition)
    assert message in str(caught.value)
