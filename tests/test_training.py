"""A training step: what it executes, in which phase and module, and what it is measured as."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from opcost.errors import OpcostError
from opcost.measuring import benchmark
from opcost.measuring.operand_values import steady
from opcost.measuring.subjects import ModelSubject
from opcost.measuring.workload import operator_workload
from opcost.models.configs import define_models
from opcost.models.construction import build
from opcost.models.definition import (
    BACKWARD,
    FORWARD,
    LOSS,
    OPTIMIZER,
    InputSpec,
    ModelDefinition,
    Training,
)
from opcost.models.iteration import iteration_of
from opcost.tuples.calls import model_calls
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.model_tuples import read_model_tuples, write_model_tuples
from opcost.tuples.operator_tuple import OperatorTuple
from opcost.tuples.tuple_record import IN_CORE, RESULTS

from tests.products import Products
from tests.quick_measurement import QUICK
from tests.stations import station_of

CLASSES = InputSpec((2,), "int64", 10)


def trained(model="resnet18", size=32, arguments=None, **training):
    """A torchvision model of ten classes, trained on a batch of two."""
    settings = {"loss": "cross_entropy", "targets": (CLASSES,), "optimizer": "SGD", **training}
    return ModelDefinition(
        model,
        (InputSpec((2, 3, size, size)),),
        model=model,
        arguments={"num_classes": 10, **(arguments or {})},
        mode="training",
        training=Training(**settings),
    )


def of_file(folder: Path, code: str, **training):
    """A model of a file, whose `build` makes it."""
    file = f"{folder.name}.py"  # imported once in a process
    (folder / file).write_text(f"import torch\nfrom torch import nn\n{code}")
    if "loss" in training:
        training["loss"] = f"{file}:{training['loss']}"
    return ModelDefinition(
        "net",
        (InputSpec((2, 4)),),
        factory=f"{file}:build",
        mode="training",
        training=Training(**training),
    )


CONFIG = {"model": "resnet18", "mode": "training", "inputs": [{"shape": [2, 3, 32, 32]}]}


def defined(folder=Path(), **config):
    return define_models("net", CONFIG | config, folder, "net.yaml").models["net"]


def test_a_config_says_how_a_model_is_trained():
    definition = defined(
        loss={"name": "cross_entropy", "label_smoothing": 0.1},
        targets=[{"shape": [2], "dtype": "int64", "high": 10}],
        optimizer={"name": "SGD", "momentum": 0.9},
    )
    training = Training(
        "cross_entropy", {"label_smoothing": 0.1}, (CLASSES,), None, "SGD", {"momentum": 0.9}
    )
    assert (definition.mode, definition.training) == ("training", training)
    assert ModelDefinition.from_json(definition.to_json()) == definition


def test_the_definition_of_an_inference_is_the_same_as_before_there_was_training():
    assert "training" not in json.loads(defined(mode="inference").to_json())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mode": "inference", "loss": "mse_loss"}, "loss: it is for training"),
        ({"mode": "inference", "optimizer": "SGD"}, "optimizer: it is for training"),
        ({"targets": [{"shape": [2]}]}, "targets: they are given to a loss, but there is none"),
        ({"loss": {"label_smoothing": 0.1}}, "loss: 'name' is a required property"),
    ],
)
def test_a_training_that_cannot_be_is_explained(config, message):
    with pytest.raises(OpcostError) as caught:
        defined(**config)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"loss": "crossentropy"}, "no loss 'crossentropy' of an output and targets. Did you mean"),
        ({"loss": "relu"}, "has no loss 'relu'"),
        ({"optimizer": "Adamw"}, "has no optimizer 'Adamw'. Did you mean 'Adam'"),
        ({"optimizer": "ASGD"}, "the numbers in its calls change from step to step"),
        ({"optimizer": "Rprop"}, "so that the weights would move away"),
        (
            {"targets": (InputSpec((2,), "int64", 11),)},
            "indices from 0 to 10 do not fit 10 classes of the loss",
        ),
        ({"targets": (InputSpec((2,), "int32", 10),)}, "the targets of the loss are int32"),
        ({"optimizer": "LBFGS"}, "optimizer LBFGS is not supported: its step runs the model"),
        ({"optimizer_arguments": {"momentun": 1}}, "cannot be made with arguments {'momentun': 1}"),
        ({"loss": None, "targets": ()}, "the loss is of shape [2, 10]; backward needs one number"),
        ({"targets": ()}, "loss: cross_entropy() missing 1 required positional argument"),
        ({"targets": (InputSpec((3,), "int64", 10),)}, "loss"),
    ],
)
def test_a_step_that_cannot_run_is_explained_before_anything_is_measured(training, message):
    with pytest.raises(OpcostError) as caught:
        model_calls(trained(**training))
    assert message in str(caught.value)


def test_a_model_without_a_trainable_parameter_is_refused(tmp_path):
    definition = of_file(tmp_path, "build = lambda: nn.Linear(4, 1).requires_grad_(False)")
    with pytest.raises(OpcostError, match="none of its parameters requires a gradient"):
        model_calls(definition, tmp_path)


def test_a_step_runs_through_its_phases_in_order():
    calls = model_calls(trained()).calls
    phases = list(dict.fromkeys(call.place.phase for call in calls))
    assert phases == [FORWARD, LOSS, BACKWARD, OPTIMIZER]
    names = {phase: [] for phase in phases}
    for call in calls:
        names[call.place.phase].append(call.operator_tuple.name)
    assert (
        names[FORWARD].count("convolution") == names[BACKWARD].count("convolution_backward") == 20
    )
    assert "nll_loss_forward" in names[LOSS]
    assert set(names[OPTIMIZER]) == {"add_"}


def test_a_call_of_backward_belongs_to_the_module_whose_forward_made_it():
    calls = model_calls(trained()).calls
    places = {
        phase: [
            call.place.module_path
            for call in calls
            if call.operator_tuple.name in names and call.place.phase == phase
        ]
        for phase, names in ((FORWARD, {"convolution"}), (BACKWARD, {"convolution_backward"}))
    }
    assert places[BACKWARD] == places[FORWARD][::-1]
    assert "layer4.1.conv2" in places[BACKWARD]


def test_a_module_that_runs_again_in_backward_is_found_there(tmp_path):
    definition = of_file(
        tmp_path,
        """
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 1)
    def forward(self, x):
        return self.last(checkpoint(self.first, x, use_reentrant=False)).sum()
build = Net
""",
    )
    calls = [
        call.place
        for call in model_calls(definition, tmp_path).calls
        if call.operator_tuple.name == "addmm"
    ]
    assert [(place.module_path, place.phase) for place in calls] == [
        ("first.0", FORWARD),
        ("last", FORWARD),
        ("first.0", BACKWARD),
    ]


FORCES = """
class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 1))
    def forward(self, position):
        position = position.requires_grad_(True)
        energy = self.net(position).sum()
        return torch.autograd.grad(energy, position, create_graph=True)[0].square().mean()
build = Potential
"""


def test_gradients_that_forward_computes_belong_to_the_modules_of_their_nodes(tmp_path):
    definition = replace(of_file(tmp_path, FORCES), inputs=(InputSpec((100, 3)),))
    found = extract_model_tuples(definition, tmp_path)
    flops = Counter()
    for call in found.calls:
        if call.phase == FORWARD:
            flops[call.module_path] += found.tuples[call.position].flops
    # The gradient of the input of a linear layer takes as many as the layer.
    assert +flops == {"net.0": 2 * 2 * 100 * 3 * 64, "net.2": 2 * 2 * 100 * 64}


CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        blocks = (nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)) for _ in range(3))
        self.stem, self.head = nn.Linear(32, 64), nn.Linear(64, 10)
        self.blocks = nn.ModuleList(blocks)
        self.reentrant = reentrant
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)
build = Net
def loss(output):
    return output.square().mean()
"""


@pytest.mark.parametrize(("reentrant", "again"), [(False, 1), (True, 2)])
def test_checkpoints_are_recomputed_in_the_modules_of_their_calls(reentrant, again, tmp_path):
    """Without reentrant autograd, a recomputation ends early: it lacks the last linear layer."""
    definition = replace(of_file(tmp_path, CHECKPOINTED, loss="loss"), inputs=(InputSpec((8, 32)),))
    found = extract_model_tuples(replace(definition, arguments={"reentrant": reentrant}), tmp_path)
    flops = Counter()
    for call in found.calls:
        flops[call.phase, call.module_path] += found.tuples[call.position].flops
    stem, linear, head = 2 * 8 * 32 * 64, 2 * 8 * 64 * 64, 2 * 8 * 64 * 10
    first, last = ([f"blocks.{block}.{number}" for block in range(3)] for number in (0, 2))
    assert +flops == {
        **{(FORWARD, path): linear for path in (*first, *last)},
        **{(BACKWARD, path): 3 * linear for path in first},
        **{(BACKWARD, path): (1 + again) * linear for path in last},
        **{(FORWARD, "stem"): stem, (FORWARD, "head"): head},
        **{(BACKWARD, "stem"): stem, (BACKWARD, "head"): 2 * head},
    }
    assert {call.module_path for call in found.calls if call.phase == LOSS} == {""}


@pytest.mark.parametrize(
    "returned", ["y.sum()", "{'loss': y.sum(), 'logits': y}", "{'boxes': y.sum(), 'one': y.mean()}"]
)
def test_a_forward_may_return_the_loss_itself(returned, tmp_path):
    definition = of_file(
        tmp_path,
        "class Net(nn.Linear):\n"
        "  def forward(self, x):\n"
        "    y = super().forward(x)\n"
        f"    return {returned}\n"
        "build = lambda: Net(4, 3)",
    )
    phases = {call.place.phase for call in model_calls(definition, tmp_path).calls}
    assert {FORWARD, BACKWARD} <= phases
    assert OPTIMIZER not in phases


def test_a_loss_of_ones_own_takes_output_and_targets(tmp_path):
    definition = of_file(
        tmp_path,
        "def build(): return nn.Linear(4, 3)\n"
        "def loss(output, target, weight): return (output - target).square().mean() * weight",
        loss="loss",
        loss_arguments={"weight": 2.0},
        targets=(InputSpec((2, 3)),),
    )
    names = [
        call.operator_tuple.name
        for call in model_calls(definition, tmp_path).calls
        if call.place.phase == LOSS
    ]
    assert names[:3] == ["sub", "pow", "mean"]


def test_heads_in_training_are_outputs_of_which_each_has_the_loss():
    calls = model_calls(trained("googlenet", 64, {"init_weights": False})).calls
    names = [call.operator_tuple.name for call in calls if call.place.phase == LOSS]
    assert names.count("nll_loss_forward") == 3


SMALL = """
def build(): return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
def loss(output): return output.square().mean()
"""


@pytest.mark.parametrize(
    "optimizer",
    ["SGD", "AdamW", "Adam", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adamax", "Adadelta"],
)
def test_each_step_makes_the_same_calls_whatever_the_learning_rate(optimizer, tmp_path):
    """A step in the middle of a training: the corrections of the first steps have faded."""
    definition = of_file(tmp_path, SMALL, loss="loss", optimizer=optimizer)
    run, inputs, _ = iteration_of(definition, build(definition, tmp_path), tmp_path)
    first = model_calls(definition, tmp_path)
    training = replace(definition.training, optimizer_arguments={"lr": 0.5})
    assert model_calls(replace(definition, training=training), tmp_path).calls == first.calls
    weights = [each.detach().clone() for each in run.module.parameters()]
    run.prepare(inputs)
    for _ in range(3):
        run(*inputs.args)
    assert all(
        torch.equal(before, after)
        for before, after in zip(weights, run.module.parameters(), strict=True)
    )


@pytest.mark.parametrize("model", ["mobilenet_v3_small", "swin_t"])
def test_flops_are_those_of_a_second_count(model):
    definition = trained(model, 64)
    found = extract_model_tuples(definition)
    counted = sum(count * (record.flops or 0) for record, count in found.kernels())
    run, inputs, _ = iteration_of(definition, build(definition))
    with Products() as products:
        run(*inputs.args)
    assert counted == products.flops


def test_what_an_earlier_phase_used_comes_from_memory():
    calls = model_calls(trained()).calls
    backward = next(
        call
        for call in calls
        if call.operator_tuple.name == "convolution_backward"
        and call.place.module_path == "layer1.0.conv1"
    )
    # Most of what it makes is the gradient of the weights, which the optimizer uses.
    assert set(backward.parameters) == {"input", "weight", RESULTS}
    update = next(call for call in calls if call.place.phase == OPTIMIZER)
    assert set(update.parameters) == {"self", "other", IN_CORE}
    forward = next(call for call in calls if call.operator_tuple.name == "convolution")
    assert set(forward.parameters) == {"weight", RESULTS}


@pytest.mark.parametrize(
    "definition",
    [
        trained("squeezenet1_1", 64, optimizer="Adam"),
        trained("shufflenet_v2_x0_5", 64, optimizer="RMSprop"),
        trained("vit_b_32", 32, {"image_size": 32}, optimizer="AdamW"),
        trained("swin_t", 64, optimizer="Adagrad"),
    ],
    ids=lambda definition: definition.name,
)
def test_all_tuples_of_a_step_run_again_from_their_json(definition, cpu):
    found = extract_model_tuples(definition)
    for record in found.tuples:
        if record.launches_kernel:
            again = OperatorTuple.from_json(record.operator_tuple.canonical_json)
            workload = operator_workload(replace(record, operator_tuple=again), cpu, "warm", seed=0)
            workload.run(3)


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "RMSprop"])
@pytest.mark.parametrize("way", ["foreach", "fused"])
def test_optimizers_over_lists_of_tensors_launch_kernels(optimizer, way, cpu, tmp_path):
    if (optimizer, way) == ("RMSprop", "fused"):
        pytest.skip("PyTorch has no such optimizer")
    training = {"optimizer": optimizer, "optimizer_arguments": {way: True}}
    definition = of_file(tmp_path, SMALL, loss="loss", **training)
    found = extract_model_tuples(definition, tmp_path)
    calls = model_calls(definition, tmp_path).calls
    calls = [call for call in calls if call.place.phase == OPTIMIZER]
    assert calls
    for call in calls:
        name = call.operator_tuple.name
        if name.startswith(("_foreach", "_fused")):
            assert call.launches_kernel, name
    for record, _ in found.kernels():
        if record.operator_tuple.name.startswith(("_foreach", "_fused")):
            operator_workload(record, cpu, "warm", seed=0).run(2)


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        # Of few weights: a processor without bfloat16 takes long for each.
        ("shufflenet_v2_x0_5", {"autocast": "bfloat16"}),
        ("resnet18", {"memory_format": "channels_last"}),
    ],
    ids=str,
)
def test_what_fake_tensors_get_wrong_is_recorded_on_real_ones(model, changes, cpu):
    definition = replace(trained(model, 32), **changes)
    found = extract_model_tuples(definition)
    for record, _ in found.kernels():
        operator_workload(record, cpu, "warm", seed=0)
    row = benchmark.measure(ModelSubject(definition, None, found), station_of(cpu, QUICK))
    assert (row["status"], row["differing_calls"]) == ("ok", [])


LSTM = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 4, batch_first=True)
    def forward(self, x):
        return self.lstm(x[None])[0].sum()
build = Net
"""
HOOK = """
def build():
    net = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    net[0].weight.register_hook(lambda gradient: gradient * 2)
    return net
def loss(output): return output.sum()
"""
SPARSE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(4, 2, sparse=True)
    def forward(self, x):
        return self.words((x > 0).long()).sum()
build = Net
"""
NOTHING = "class Net(nn.Linear):\n  def forward(self, x): return {}\nbuild = lambda: Net(4, 1)"


@pytest.mark.parametrize(
    ("code", "training", "message"),
    [
        (LSTM, {}, "mkldnn_rnn_layer_backward.default may not be called: it reads a workspace"),
        (HOOK, {"loss": "loss"}, "parameter 0.weight has a hook, which copies of it do not have"),
        (SPARSE, {}, "sparse_coo tensors are not supported"),
        (NOTHING, {}, "model net: the loss is of dict; backward needs one number"),
    ],
)
def test_what_no_tuple_can_describe_is_refused(code, training, message, tmp_path):
    with pytest.raises(OpcostError) as caught:
        extract_model_tuples(of_file(tmp_path, code, **training), tmp_path)
    assert message in str(caught.value)


def test_an_lstm_is_trained_without_onednn_as_its_refusal_says(tmp_path):
    call = "self.lstm(x[None])[0].sum()"
    with pytest.raises(OpcostError, match=r"under torch.backends.mkldnn.flags") as caught:
        extract_model_tuples(of_file(tmp_path, LSTM), tmp_path)
    assert "To allow it" not in str(caught.value)
    without = f"""
        with torch.backends.mkldnn.flags(enabled=False):
            return {call}"""
    code = LSTM.replace(f"return {call}", without.strip())
    folder = tmp_path / "without_onednn"
    folder.mkdir()
    found = extract_model_tuples(of_file(folder, code), folder)
    names = {record.operator_tuple.name for record, _ in found.kernels()}
    assert "sigmoid_backward" in names


def test_probabilities_are_drawn_for_a_loss_of_probabilities(tmp_path, cpu):
    definition = replace(
        of_file(
            tmp_path,
            "import torch.nn.functional as F\n"
            "def build(): return nn.Sequential(nn.Linear(4, 3), nn.Sigmoid())\n"
            "def loss(output, target): return F.binary_cross_entropy(output, target)",
            loss="loss",
            targets=(InputSpec((2, 3), None, 1.0, 0.0),),
        )
    )
    for record, _ in extract_model_tuples(definition, tmp_path).kernels():
        operator_workload(record, cpu, "warm", seed=0)


def test_a_factor_in_place_keeps_its_operand_within_bounds():
    decay = OperatorTuple.from_json(
        '{"arguments":{"other":0.9,"self":{"dtype":"float32","shape":[4]}},'
        '"operator":"aten.mul_.Tensor"}'
    )
    assert dict(steady(decay).arguments)["other"] == 1.0
    elsewhere = OperatorTuple.from_json(decay.canonical_json.replace("mul_", "mul"))
    assert steady(elsewhere) == elsewhere


def test_phases_survive_the_file(tmp_path):
    found = extract_model_tuples(trained("alexnet", 63))
    write_model_tuples(tmp_path / "alexnet.pkl", found)
    assert read_model_tuples(tmp_path / "alexnet.pkl").calls == found.calls


@pytest.fixture(scope="module")
def measured(cpu):
    """A small model, extracted and measured as a whole."""
    definition = trained("squeezenet1_1", 32, optimizer="AdamW")
    extracted = extract_model_tuples(definition)
    subject = ModelSubject(definition, None, extracted)
    return extracted, benchmark.measure(subject, station_of(cpu, QUICK))


def test_the_whole_step_makes_the_extracted_calls(measured):
    _, row = measured
    assert (row["status"], row["error"] if row["status"] != "ok" else None) == ("ok", None)
    assert row["differing_calls"] == []
    assert "calls_vary" not in row["flags"]
    parts = [row[f"{phase}_time_s"] for phase in ("forward", "backward", "optimizer")]
    assert min(parts) > 0
    assert sum(parts) == pytest.approx(row["time_s"], rel=0.05)


@pytest.mark.parametrize("mode", ["graph", "compiled"])
def test_other_launch_modes_are_for_inference(mode, cpu):
    definition = trained("squeezenet1_1", 32)
    subject = ModelSubject(definition)
    subject.launch_mode = mode
    row = benchmark.measure(subject, station_of(cpu, QUICK))
    assert row["status"] == "unsupported"
    assert f"launch mode {mode} is for inference, not for training" in row["error"]


def in_mixed_precision(training, **changes):
    definition = (
        trained("alexnet", 63)
        if training
        else replace(trained("alexnet", 63), mode="inference", training=None)
    )
    return replace(definition, autocast="bfloat16", **changes)


@pytest.mark.parametrize("training", [True, False])
def test_under_autocast_casts_are_operators_like_any_other(training):
    calls = model_calls(in_mixed_precision(training)).calls
    casts = [call for call in calls if call.operator_tuple.name in ("_to_copy", "to")]
    weights = [call for call in casts if call.parameters[:1] == ("self",)]
    assert len([call for call in weights if call.place.phase == FORWARD]) == 16
    convolutions = [call for call in calls if call.operator_tuple.name.startswith("conv")]
    assert all(spec.dtype == "bfloat16" for call in convolutions for spec in call.outputs)


def test_the_whole_model_is_measured_under_autocast(cpu):
    # Of few weights: a processor without bfloat16 takes long for each.
    definition = in_mixed_precision(training=False, model="squeezenet1_1")
    extracted = extract_model_tuples(definition)
    row = benchmark.measure(ModelSubject(definition, None, extracted), station_of(cpu, QUICK))
    assert (row["status"], row.get("error"), row["differing_calls"]) == ("ok", None, [])


def test_training_in_float16_is_refused():
    with pytest.raises(OpcostError, match="training in float16 needs its gradients scaled"):
        defined(autocast="float16")
    assert defined(mode="inference", autocast="float16").autocast == "float16"


def test_the_memory_of_activations_is_that_which_lives_at_once(tmp_path):
    definition = of_file(
        tmp_path,
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 256, bias=False)
    def forward(self, x):
        y = self.linear(x.unsqueeze(0)[0])  # 2 x 256: 2048 bytes; its input is not made here
        return (y.exp() + 1).tanh().sum()  # exp is saved for its backward, and so is tanh
build = Net
""",
    )
    inference = replace(definition, mode="inference", training=None)
    peak = model_calls(inference, tmp_path).memory.peak_bytes
    assert peak == 3 * 2048  # y, its exp, and that + 1
    assert model_calls(definition, tmp_path).memory.peak_bytes >= 4 * 2048
