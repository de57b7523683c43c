"""FLOPs of training steps are those of a second count (tests/products.py); their tuples run."""

import pytest
import torch
import transformers
from opcost.measuring.workload import operator_workload
from opcost.models.construction import build
from opcost.models.definition import InputSpec, ModelDefinition, Training
from opcost.models.iteration import iteration_of
from opcost.tuples.extraction import extract_model_tuples

from tests.products import Products, both_counts

pytestmark = pytest.mark.slow

SIZES = {"inception_v3": 299, "vit_b_32": 224, "maxvit_t": 224}
TORCHVISION = [
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s"),
    *("googlenet", "inception_v3", "maxvit_t", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_small"),
    *("regnet_y_400mf", "resnet18", "resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_1"),
    *("swin_t", "swin_v2_t", "vgg11_bn", "vit_b_32"),
]

COMMON = {
    **{"hidden_size": 32, "intermediate_size": 64},
    **{"num_hidden_layers": 2, "num_attention_heads": 4},
}
TRANSFORMERS = {
    "LlamaForCausalLM": COMMON | {"num_key_value_heads": 2},
    "PhiForCausalLM": COMMON,
    "BertForMaskedLM": COMMON,
    "ElectraForPreTraining": COMMON | {"embedding_size": 16},
    "GPT2LMHeadModel": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "OPTForCausalLM": COMMON | {"word_embed_proj_dim": 32, "ffn_dim": 64},
    "T5ForConditionalGeneration": {
        **{"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    },
}


@pytest.mark.parametrize("name", TORCHVISION)
def test_a_step_of_torchvision_has_the_flops_of_the_second_count_and_its_tuples_run(name, cpu):
    size = SIZES.get(name, 64)
    labels = (InputSpec((2,), "int64", 1000),)
    definition = ModelDefinition(
        name,
        (InputSpec((2, 3, size, size)),),
        model=name,
        arguments={"init_weights": False} if name in ("googlenet", "inception_v3") else None,
        mode="training",
        training=Training("cross_entropy", {}, labels, optimizer="AdamW"),
    )
    kernels = extract_model_tuples(definition).kernels()
    run, inputs, _ = iteration_of(definition, build(definition))
    with torch.enable_grad(), Products() as products:
        run(*inputs.args)
    assert sum(count * (record.flops or 0) for record, count in kernels) == products.flops
    for record, _ in kernels:
        operator_workload(record, cpu, "warm", 0).run(1)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_step_of_a_transformer_has_the_flops_of_the_second_count(name):
    kind = getattr(transformers, name)
    config = kind.config_class(vocab_size=100, **TRANSFORMERS[name], use_cache=False)
    ids = torch.randint(3, 100, (2, 16))
    kwargs = {"input_ids": ids, "return_dict": True}
    if name.startswith("T5"):
        kwargs["decoder_input_ids"] = ids[:, :7]
    counted, expected = both_counts(kind(config), [], kwargs)
    assert counted == expected
