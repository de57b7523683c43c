"""Models of timm and transformers: by name, of any size, with random weights."""

import re
from pathlib import Path

import pytest
from opcost.errors import OpcostError
from opcost.measuring import benchmark
from opcost.measuring.subjects import ModelSubject
from opcost.models import zoo
from opcost.models.configs import define_models, load_models
from opcost.models.construction import build
from opcost.tuples.calls import model_calls
from opcost.tuples.extraction import extract_model_tuples
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.documents import ROOT
from tests.quick_measurement import QUICK
from tests.stations import station_of

TINY = {
    "LlamaForCausalLM": {
        "vocab_size": 100,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    "GPT2LMHeadModel": {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "BertForMaskedLM": {
        "vocab_size": 100,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    },
    "MixtralForCausalLM": {
        "vocab_size": 100,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
    },
}
IDS = {"shape": [2, 16], "dtype": "int64", "high": 100}


def transformer(name, **config):
    inputs = {"input_ids": IDS} | config.pop("more", {})
    document = {"model": f"transformers:{name}", "arguments": TINY.get(name, {}), "inputs": inputs}
    return define_models(name, document | config, Path(), "net.yaml").models[name]


def timm(name, **config):
    document = {"model": f"timm:{name}", "inputs": [{"shape": [1, 3, 64, 64]}]}
    return define_models("net", document | config, Path(), "net.yaml").models["net"]


@pytest.mark.parametrize("name", TINY)
def test_a_transformer_makes_the_extracted_calls_when_it_is_measured(name, cpu):
    definition = transformer(name)
    extracted = extract_model_tuples(definition)
    row = benchmark.measure(ModelSubject(definition, None, extracted), station_of(cpu, QUICK))
    assert (row["status"], row.get("error"), row["differing_calls"]) == ("ok", None, [])


@pytest.mark.parametrize("name", ["LlamaForCausalLM"])
def test_a_transformer_trains_on_the_loss_that_it_returns(name, cpu):
    definition = transformer(name, more={"labels": IDS}, mode="training", optimizer="AdamW")
    extracted = extract_model_tuples(definition)
    assert {"forward", "backward", "optimizer"} == {call.phase for call in extracted.calls} - {
        "loss"
    }
    row = benchmark.measure(ModelSubject(definition, None, extracted), station_of(cpu, QUICK))
    assert (row["status"], row.get("error"), row["differing_calls"]) == ("ok", None, [])


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224"])
def test_a_model_of_timm_is_extracted(name):
    definition = timm(name, arguments={"img_size": 64} if name.startswith("vit") else {})
    assert extract_model_tuples(definition).calls


def test_a_model_larger_than_the_memory_is_extracted():
    definition = define_models(
        "llama",
        {
            "model": "transformers:LlamaForCausalLM",
            "dtype": "bfloat16",
            "arguments": {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 2}
            | {"num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 10**8},
            "inputs": {"input_ids": {"shape": [1, 8], "dtype": "int64", "high": 100}},
        },
        Path(),
        "net.yaml",
    ).models["llama"]
    found = model_calls(definition)
    assert 2 * found.parameters[""] > 2**40  # bytes: a tebibyte and more
    assert found.calls


def test_the_flops_of_linear_layers_are_two_for_each_weight_and_token():
    found = extract_model_tuples(transformer("LlamaForCausalLM"))
    sizes = TINY["LlamaForCausalLM"]
    others = (2 * sizes["num_hidden_layers"] + 1) * sizes["hidden_size"]
    embedding = sizes["vocab_size"] * sizes["hidden_size"]
    linear = sum(
        count * record.flops
        for record, count in found.kernels()
        if record.operator_tuple.name == "linear"
    )
    assert linear == 2 * (found.parameters - embedding - others) * 2 * 16


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (lambda: transformer("LamaForCausalLM"), "Did you mean 'LlamaForCausalLM'"),
        (
            lambda: transformer("LlamaForCausalLM", arguments={"hiden_size": 32}),
            "LlamaConfig has no value 'hiden_size'. Did you mean 'hidden_size'",
        ),
        (
            lambda: transformer("LlamaForCausalLM", arguments={"dtype": "bfloat16"}),
            "arguments: dtype: write `dtype` beside `model` instead",
        ),
        (
            lambda: transformer("LlamaForCausalLM", arguments={"vocab_size": 50}),
            "indices from 0 to 99 do not fit 50 rows of an embedding",
        ),
        (
            lambda: transformer("GPT2LMHeadModel", arguments={"n_positions": 8}),
            "it counts 16 positions, of which the model has 8",
        ),
        (
            lambda: timm("resnet10t", arguments={"pretrained": True}),
            "nothing is downloaded: leave `pretrained` out",
        ),
        (lambda: timm("resnet10"), "timm has no model 'resnet10'. Did you mean 'resnet10t'"),
    ],
)
def test_a_model_that_is_not_there_is_explained(definition, message):
    with pytest.raises(OpcostError) as caught:
        model_calls(definition())
    assert message in str(caught.value)


def test_the_implementation_of_attention_may_be_chosen():
    arguments = {**TINY["LlamaForCausalLM"], "attn_implementation": "eager"}
    calls = model_calls(transformer("LlamaForCausalLM", arguments=arguments)).calls
    names = {call.operator_tuple.name for call in calls}
    assert "softmax" in names
    assert "scaled_dot_product_attention" not in names


def test_a_library_that_is_not_installed_or_not_known_is_explained(monkeypatch):
    with pytest.raises(OpcostError, match=r"unknown library 'keras'.*are a factory"):
        define_models("net", {"model": "keras:x", "inputs": [{"shape": [1]}]}, Path(), "net.yaml")
    monkeypatch.setitem(zoo._CONSTRUCTORS, "no_such_library", None)
    with pytest.raises(OpcostError, match=r"no_such_library is not installed: pip install"):
        zoo.installed_version("no_such_library")


def test_another_version_of_the_library_is_another_definition(monkeypatch):
    before = transformer("LlamaForCausalLM")
    monkeypatch.setattr("opcost.models.source.installed_version", lambda _: "99")
    assert transformer("LlamaForCausalLM").source_digest != before.source_digest


PUBLIC = sorted((ROOT / "config/language_models").glob("*.yaml"))


@pytest.mark.parametrize("path", PUBLIC, ids=[path.stem for path in PUBLIC])
def test_the_public_models_have_as_many_parameters_as_their_configs_say(path):
    stated = re.search(r": ([\d,]+) parameters", path.read_text())
    definition = next(iter(load_models(path.stem, path.parent).models.values()))
    with FakeTensorMode():
        module = build(definition)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    assert parameters == int(stated[1].replace(",", ""))


def test_a_public_model_is_extracted_step_by_step():
    steps = load_models("mixtral_8x7b", ROOT / "config/language_models").models
    for definition in [*steps.values()][:2]:
        assert model_calls(definition).calls


MASK = {"shape": [2, 16], "dtype": "int64"}


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("LlamaForCausalLM", {"use_cache": False}),
        ("LlamaForCausalLM", {"attention_mask": MASK | {"high": 2}}),
        ("LlamaForCausalLM", {"position_ids": MASK | {"high": 16}, "use_cache": False}),
        ("BertForMaskedLM", {"attention_mask": MASK | {"low": 1, "high": 2}}),
    ],
)
def test_masks_are_those_that_values_ask_for(name, more, cpu):
    definition = transformer(name, more=more)
    extracted = extract_model_tuples(definition)
    row = benchmark.measure(ModelSubject(definition, None, extracted), station_of(cpu, QUICK))
    assert (row["status"], row.get("error"), row["differing_calls"]) == ("ok", None, [])
