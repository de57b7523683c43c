"""Steps of generating text: prefill and decoding with keys and values in a cache."""

from pathlib import Path

import pytest
import torch
from opcost.errors import OpcostError
from opcost.measuring import benchmark
from opcost.measuring.subjects import ModelSubject
from opcost.models.conditions import conditions
from opcost.models.configs import define_models, load_model
from opcost.models.construction import build
from opcost.models.inputs import further_inputs
from opcost.models.iteration import iteration_of, prepare
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.model_tuples import total_flops

from tests.documents import ROOT
from tests.quick_measurement import QUICK
from tests.stations import station_of

LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 4}
SIZES = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 64, **LAYERS}
LLAMA = SIZES | {"num_key_value_heads": 2}
DECODERS = {
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": LLAMA | {"sliding_window": 8},
    "MixtralForCausalLM": LLAMA | {"num_local_experts": 4},
    "GPT2LMHeadModel": {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "BertLMHeadModel": SIZES | {"is_decoder": True},
}
IDS = {"shape": [2, 16], "dtype": "int64", "high": 100}


def defined(name="LlamaForCausalLM", **config):
    document = {"model": f"transformers:{name}", "arguments": DECODERS.get(name, {})}
    return define_models("chat", document | {"inputs": {"input_ids": IDS}} | config, Path(), "chat")


def step(name, cached_tokens, tokens=1, **config):
    inputs = {"input_ids": IDS | {"shape": [2, tokens]}}
    found = defined(name, inputs=inputs, cached_tokens=cached_tokens, **config)
    return found.models["chat"]


def test_a_generation_stands_for_a_prefill_and_steps_from_the_first_to_the_last():
    models, [generation], _ = defined(generation={"new_tokens": 101})
    assert list(models) == ["chat[prompt=16]", *(f"chat[cache={n}]" for n in (16, 40, 65, 90, 115))]
    assert list(models) == generation.models
    assert [each.inputs[0].shape for each in models.values()] == [(2, 16), *[(2, 1)] * 5]
    assert [each.cached_tokens for each in models.values()] == [0, 16, 40, 65, 90, 115]
    assert (generation.steps[0], generation.steps[-1], len(generation.steps)) == (16, 115, 100)


@pytest.mark.parametrize(("new_tokens", "lengths"), [(2, [16]), (3, [16, 17]), (4, [16, 17, 18])])
def test_short_generations_are_measured_at_each_step(new_tokens, lengths):
    [generation] = defined(generation={"new_tokens": new_tokens}).generations
    assert [*generation.steps] == [*generation.cache_lengths] == lengths


def test_the_length_that_fills_a_sliding_window_is_measured_too():
    models = defined(generation={"new_tokens": 1000}, arguments={"sliding_window": 40})
    assert 39 in models.generations[0].cache_lengths
    beyond = defined(generation={"new_tokens": 8}, arguments={"sliding_window": 4096})
    assert 4095 not in beyond.generations[0].cache_lengths


def test_lengths_may_be_named_and_reach_beyond_the_steps():
    named = {"new_tokens": 11, "cache_lengths": [64, 8, 8, 16]}
    assert defined(generation=named).generations[0].cache_lengths == (8, 16, 64)


@pytest.mark.parametrize("cached_tokens", [0, 16])
@pytest.mark.parametrize("name", DECODERS)
def test_a_step_makes_the_extracted_calls_when_it_is_measured(name, cached_tokens, cpu):
    definition = step(name, cached_tokens, tokens=1 if cached_tokens else 16)
    extracted = extract_model_tuples(definition)
    row = benchmark.measure(ModelSubject(definition, None, extracted), station_of(cpu, QUICK))
    assert (row["status"], row.get("error"), row["differing_calls"]) == ("ok", None, [])
    assert "calls_vary" not in row["flags"]


def test_a_step_reads_the_cache_from_memory_and_computes_the_last_logits_alone():
    found = extract_model_tuples(step("LlamaForCausalLM", 16, tokens=3))
    [appended] = [
        each
        for each in found.tuples
        if each.operator_tuple.name == "cat"
        and [spec.shape for _, spec in each.operator_tuple.tensors] == [(2, 2, 16, 8), (2, 2, 3, 8)]
    ]
    assert appended.parameters == ("tensors",)
    *_, logits = (each for each in found.tuples if each.operator_tuple.name == "linear")
    assert [spec.shape for _, spec in logits.operator_tuple.tensors] == [(2, 1, 32), (100, 32)]


def test_each_iteration_finds_the_same_cache_and_gives_what_forward_gives():
    definition = step("LlamaForCausalLM", 16)
    with conditions(trained=False):
        module = build(definition)
        earlier = further_inputs(definition)
        run, inputs, _ = iteration_of(definition, module)
        prepare(run, inputs)
        logits = [run(**inputs.kwargs).logits for _ in range(3)]
        both = torch.cat([earlier.kwargs["input_ids"], inputs.kwargs["input_ids"]], dim=1)
        expected = module(input_ids=both).logits[:, -1:]
    for each in logits:
        torch.testing.assert_close(each, expected, atol=1e-5, rtol=1e-4)


def test_steps_share_all_tuples_but_those_that_read_the_cache():
    first, second = (
        {
            each.operator_tuple
            for each in extract_model_tuples(step("LlamaForCausalLM", length)).tuples
            if each.launches_kernel
        }
        for length in (16, 33)
    )
    assert {each.name for each in first - second} == {"add", "cat", "scaled_dot_product_attention"}
    assert len(second - first) == 3


def test_flops_of_a_step_grow_with_the_cache_linearly():
    flops = [
        total_flops(extract_model_tuples(step("LlamaForCausalLM", length)).kernels())
        for length in (10, 20, 30)
    ]
    assert flops[2] - flops[1] == flops[1] - flops[0] == 2 * 2 * 2 * 2 * 32 * 10


def test_mixed_precision_generates_too(cpu):
    definition = step("LlamaForCausalLM", 16, autocast="bfloat16")
    extracted = extract_model_tuples(definition)
    row = benchmark.measure(ModelSubject(definition, None, extracted), station_of(cpu, QUICK))
    assert (row["status"], row["differing_calls"]) == ("ok", [])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"generation": {"new_tokens": 1}}, "generation.new_tokens: 1 is less than the minimum"),
        (
            {"generation": {"new_tokens": 8, "cache_lengths": [17, 22]}},
            "the steps find 16 to 22 cached tokens: name lengths from the first to the last",
        ),
        (
            {"generation": {"new_tokens": 8}, "cached_tokens": 4},
            "cached_tokens: generation says how many are cached: leave it out",
        ),
        (
            {"generation": {"new_tokens": 8}, "inputs": {"input_ids": IDS, "attention_mask": IDS}},
            "the tensors here are input_ids, attention_mask: leave out attention_mask: it needs no "
            "mask, because all sequences of a batch have the same length",
        ),
        (
            {"cached_tokens": 8, "inputs": {"input_ids": IDS, "attention_mask": IDS}},
            "leave out attention_mask: it needs no mask",
        ),
        ({"generation": {"new_tokens": 8}, "inputs": [{"shape": [16]}]}, "needs one tensor"),
        ({"generation": {"new_tokens": 8}, "mode": "training"}, "training generates no text"),
        (
            {"generation": {"new_tokens": 8}, "inputs": [IDS], "inputs_in_list": True},
            "inputs_in_list: true",
        ),
        ({"cached_tokens": 4, "mode": "training"}, "training generates no text"),
        ({"cached_tokens": 4, "inputs": {"a": IDS, "b": IDS}}, "needs one tensor of inputs"),
    ],
)
def test_a_wrong_generation_is_explained_before_anything_is_built(config, message):
    with pytest.raises(OpcostError) as caught:
        defined(**config)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("BertModel", "forward of BertModel returned none of cache"),
        ("ViTModel", "the forward of ViTModel takes none of cache, past_key_values"),
        ("T5ForConditionalGeneration", "has an encoder and a decoder"),
    ],
)
def test_a_model_without_a_cache_is_refused(name, message):
    with pytest.raises(OpcostError, match=message):
        extract_model_tuples(step(name, 16, arguments=SIZES if name == "BertModel" else {}))


def test_what_a_step_sets_itself_is_refused_among_its_inputs():
    inputs = {"input_ids": IDS, "use_cache": False}
    [prefill] = defined(inputs=inputs, cached_tokens=0).models.values()
    with pytest.raises(OpcostError, match="inputs: use_cache: a step of generating text sets it"):
        extract_model_tuples(prefill)


def test_a_step_is_found_by_its_name_and_another_is_explained():
    folder = ROOT / "config/models"
    assert load_model("llama_tiny_chat[cache=95]", folder).cached_tokens == 95
    for name, what in (
        (
            "llama_tiny_chat[cache=96]",
            r"has no part llama_tiny_chat\[cache=96\]: name",
        ),
        ("llama_tiny_chat", "stands for several models: name one of"),
    ):
        with pytest.raises(OpcostError, match=what):
            load_model(name, folder)
