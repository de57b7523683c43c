"""FLOPs are those that torchvision publishes, and bytes those of arguments and results."""

import pytest
import torch
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.tuples.description import describe, describe_tensor
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.parsing import parse
from opcost.tuples.replay import tensors_in_tree
from opcost.tuples.work import flops, minimal_bytes
from torchvision.models import get_model_weights, get_weight

aten = torch.ops.aten


def giga_macs(tuples):
    counts = tuples.call_counts()
    return sum(counts[key] * record.flops for key, record in tuples.by_id.items()) / 2e9


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16", "swin_t", "efficientnet_b0", "mvit_v1_b"])
def test_flops_and_parameters_are_the_published_ones(name):
    meta = get_model_weights(name).DEFAULT.meta
    shape = (1, 3, 16, 224, 224) if name.startswith("mvit") else (1, 3, 224, 224)
    tuples = extract_model_tuples(ModelDefinition(name, (InputSpec(shape),), model=name))
    assert round(giga_macs(tuples), 3) == meta["_ops"]
    assert tuples.parameters == meta["num_params"]


def test_a_multiplication_and_an_addition_are_two():
    linear = describe(aten.linear.default, (torch.empty(5, 3), torch.empty(2, 3)), {})
    assert flops(linear) == 2 * 5 * 3 * 2


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((8, 16), (4, 16, 32), 2 * 8 * 16 * 32),  # each row is of one group
        ((16, 8), (8, 32), 2 * 16 * 8 * 32),  # so is each column, in backward
        ((4, 8, 16), (16, 32), 2 * 8 * 16 * 32),
        ((4, 8, 16), (4, 16, 32), 2 * 4 * 8 * 16 * 32),
    ],
)
def test_products_of_groups_are_counted(first, second, expected):
    groups = torch.tensor([2, 4, 6, 8], dtype=torch.int32)
    args = (torch.empty(first), torch.empty(second), groups)
    assert flops(describe(aten._grouped_mm.default, args, {})) == expected


@pytest.mark.parametrize(
    ("operator", "args", "expected"),
    [
        (aten.relu.default, (torch.empty(10),), 80),  # read, write
        (aten.relu_.default, (torch.empty(10),), 80),
        (aten.add_.Tensor, (torch.empty(10), torch.empty(10)), 120),  # read twice, write
        (aten.add.Tensor, (torch.empty(5, 10), torch.empty(10)), 440),  # broadcast reads ten
        (aten.add.Tensor, (torch.empty(5, 10), torch.empty(1, 10).expand(5, 10)), 440),
        (aten.relu.default, (torch.empty(10, dtype=torch.float16),), 40),
    ],
)
def test_minimal_bytes_count_each_element_once(operator, args, expected):
    outputs = [describe_tensor(operator(*args))]
    assert minimal_bytes(describe(operator, args, {}), outputs) == expected


@pytest.mark.parametrize(
    ("operator", "args", "entries"),
    [
        (aten.embedding.default, (torch.empty(1000, 10), torch.tensor([3, 5])), 20),
        (aten.embedding.default, (torch.empty(1, 10), torch.tensor([0, 0, 0])), 10),  # all of it
        (aten.index_select.default, (torch.empty(1000, 10), 0, torch.tensor([3, 5])), 20),
        (aten.index.Tensor, (torch.empty(1000, 10), [torch.tensor([3, 5])]), 20),
        (aten.gather.default, (torch.empty(1000, 2), 0, torch.tensor([[3, 5]])), 2),
        (
            aten.embedding_bag.default,
            (torch.empty(1000, 10), torch.tensor([3, 5]), torch.tensor([0])),
            20,
        ),
        (  # that of training
            aten._embedding_bag.default,
            (torch.empty(1000, 10), torch.tensor([3, 5]), torch.tensor([0])),
            20,
        ),
    ],
)
def test_of_a_table_the_entries_that_are_read_count(operator, args, entries):
    results = operator(*args)
    outputs = [describe_tensor(each) for each in tensors_in_tree(results)]
    read = describe(operator, args, {})
    others = [spec.bytes for name, spec in read.tensors if name in ("indices", "index", "offsets")]
    written = sum(each.bytes for each in outputs)
    assert minimal_bytes(read, outputs) == 4 * entries + sum(others) + written


TABLE, ROW = torch.empty(1000, 10), torch.tensor([[3, 5]])


@pytest.mark.parametrize(
    ("operator", "args", "written", "read"),
    [
        (aten.index_copy_.default, (TABLE, 0, ROW[0], torch.empty(2, 10)), 80, 80 + 16),
        (aten.index_add_.default, (TABLE, 0, ROW[0], torch.ones(1).expand(2, 10)), 80, 4 + 16),
        (aten.scatter_.value, (TABLE, 0, ROW, 1.0), 8, 16),
        (aten.scatter_.src, (TABLE, 0, ROW, torch.empty(9, 9)), 8, 16 + 324),
    ],
)
def test_of_a_table_the_entries_that_are_written_count(operator, args, written, read):
    found = minimal_bytes(describe(operator, args, {}), [describe_tensor(TABLE)])
    assert found == 2 * written + read


@pytest.mark.parametrize("call", ["copy_(5x10, 5x10[pinned])", "copy_(5x10[pageable], 10)"])
def test_of_a_copy_between_host_and_device_the_bytes_are_those_that_pass_between_them(call):
    assert minimal_bytes(parse(call), []) == 200


def test_the_weights_that_the_oracle_speaks_of_exist():
    assert get_weight("ResNet18_Weights.IMAGENET1K_V1").meta["num_params"] == 11_689_512
