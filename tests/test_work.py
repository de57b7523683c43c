"""FLOPs are those that torchvision publishes, and bytes those of arguments and results."""

import pytest
import torch
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.tuples.description import describe, describe_tensor
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.parsing import parse
from opcost.tuples.replay import tensors_in_tree
from opcost.tuples.work import UnknownFlops, flops, minimal_bytes
from torch import empty, nn
from torch.nn import functional
from torchvision.models import get_model_weights
from torchvision.ops import DeformConv2d

from tests.products import both_counts

aten = torch.ops.aten


def giga_macs(tuples):
    counts = tuples.call_counts()
    return sum(counts[key] * record.flops for key, record in tuples.by_id.items()) / 2e9


@pytest.mark.parametrize("name", ["resnet18", "swin_t", "mvit_v1_b"])
def test_flops_and_parameters_are_the_published_ones(name):
    meta = get_model_weights(name).DEFAULT.meta
    shape = (1, 3, 16, 224, 224) if name.startswith("mvit") else (1, 3, 224, 224)
    tuples = extract_model_tuples(ModelDefinition(name, (InputSpec(shape),), model=name))
    assert round(giga_macs(tuples), 3) == meta["_ops"]
    assert tuples.parameters == meta["num_params"]


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


def complex_(*shape):
    return empty(shape, dtype=torch.complex64)


GATES = [empty(128, 16), empty(128, 32), empty(128), empty(128)]
STATE = [empty(1, 4, 32), empty(1, 4, 32)]
OF_LSTM = (False, [], 2, 32, 1, True, False, False, False)
ATTENTION = [empty(96, 32), empty(96), empty(32, 32), empty(32)]
NORMS, FEED_FORWARD = [empty(32)] * 4, [empty(64, 32), empty(64), empty(32, 64), empty(32)]


@pytest.mark.parametrize(
    ("call", "args", "expected"),
    [
        ("mv", (empty(3, 4), empty(4)), 2 * 12),
        ("dot", (empty(4), empty(4)), 2 * 4),
        ("addmv", (empty(3), empty(3, 4), empty(4)), 2 * 12),
        ("addr", (empty(3, 4), empty(3), empty(4)), 2 * 12),
        ("addbmm", (empty(3, 5), empty(7, 3, 4), empty(7, 4, 5)), 2 * 7 * 3 * 4 * 5),
        ("_addmm_activation", (empty(5), empty(3, 4), empty(4, 5)), 2 * 3 * 4 * 5),
        ("_int_mm", (empty(17, 8).char(), empty(8, 16).char()), 2 * 17 * 8 * 16),
        ("einsum", ("ij,jk->ik", [empty(3, 4), empty(4, 5)]), 2 * 3 * 4 * 5),
        ("tensordot", (empty(2, 3, 4), empty(3, 4, 5), [1, 2], [0, 1]), 2 * 2 * 12 * 5),
        ("mm", (complex_(3, 4), complex_(4, 5)), 8 * 3 * 4 * 5),
        ("vdot", (complex_(4), complex_(4)), 8 * 4),
        (
            "bilinear",
            (empty(128, 20), empty(128, 30), empty(40, 20, 30), empty(40)),
            2 * 128 * 40 * 20 * 30 + 2 * 128 * 40 * 30,
        ),
        ("conv_tbc", (empty(10, 2, 8), empty(3, 8, 16), empty(16)), 2 * 8 * 2 * 16 * 3 * 8),
        ("affine_grid_generator", (empty(2, 2, 3), [2, 3, 8, 9], False), 2 * 2 * 72 * 2 * 3),
        ("lstm.input", (empty(4, 10, 16), STATE, GATES, True, 1, 0.0, False, False, True), 491_520),
        (  # sequences of 10, 7, 3 and 1 elements, whatever the values of their lengths
            "lstm.data",
            (empty(21, 16), torch.zeros(10).long(), STATE, GATES, True, 1, 0.0, False, False),
            258_048,
        ),
        (
            "mkldnn_rnn_layer",
            (empty(10, 4, 16), *GATES, STATE[0][0], STATE[1][0], *OF_LSTM),
            491_520,
        ),
        (
            "_native_multi_head_attention",
            (*[empty(2, 5, 32)] * 3, 32, 4, *ATTENTION),
            2 * 10 * 32 * 32 * 4 + 2 * 2 * 2 * 25 * 32,
        ),
        (
            "_transformer_encoder_layer_fwd",
            (empty(2, 5, 32), 32, 4, *ATTENTION, False, False, 1e-5, *NORMS, *FEED_FORWARD),
            2 * 10 * 32 * 32 * 4 + 2 * 2 * 2 * 25 * 32 + 2 * 2 * 10 * 32 * 64,
        ),
        ("embedding_bag", (empty(9, 4), torch.tensor([1, 2]), torch.tensor([0])), 0),
        ("linalg_vector_norm", (empty(3),), 0),
        ("leaky_relu_backward", (empty(3), empty(3), 0.1, False), 0),
    ],
)
def test_products_have_the_flops_of_their_sizes(call, args, expected):
    name, _, overload = call.partition(".")
    operator = getattr(getattr(aten, name), overload or "default")
    assert flops(describe(operator, args, {})) == expected


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("fft_fft", (empty(8),)),
        ("linalg_inv", (empty(3, 3),)),
        ("linalg_solve_triangular", (empty(3, 3), empty(3, 2))),
        ("linalg_matrix_norm", (empty(3, 3), -2)),  # of singular values
        ("_cdist_forward", (empty(3, 4), empty(3, 4), 2.0, None)),
        (  # a weighted sum
            "embedding_bag",
            (empty(9, 4), torch.tensor([1]), torch.tensor([0]), False, 0, False, empty(1)),
        ),
    ],
)
def test_what_may_add_products_without_a_formula_is_unknown_not_zero(name, args):
    with pytest.raises(UnknownFlops, match="has no formula"):
        flops(describe(getattr(aten, name).default, args, {}))


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("output_mask", "products"),
    [([True, True, True], 2), ([False, True, True], 1), ([True, False, False], 1)],
)
def test_each_gradient_of_a_convolution_takes_what_forward_does(
    groups, transposed, output_mask, products
):
    sizes = (8, 12 // groups) if transposed else (12, 8 // groups)
    data, weight = empty(2, 8, 8, 8), empty(*sizes, 3, 3)
    settings = ([1, 1], [1, 1], [1, 1], transposed, [0, 0], groups)
    forward = 2 * 2 * 64 * 9 * 8 * 12 // groups
    result = describe(aten.convolution.default, (data, weight, None, *settings), {})
    assert flops(result) == forward
    args = (empty(2, 12, 8, 8), data, weight, [12], *settings, output_mask)
    assert flops(describe(aten.convolution_backward.default, args, {})) == products * forward


class Deformed(nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = nn.Conv2d(8, 18, 3, padding=1)
        self.conv = DeformConv2d(8, 4, 3, padding=1)

    def forward(self, x):
        return self.conv(x, self.offset(x))


class Solved(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        return torch.linalg.solve(self.linear(x) @ x.mT + torch.eye(4), x)


class Contracted(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.mix = nn.Linear(8, 8), nn.Bilinear(8, 8, 3)

    def forward(self, x):
        query = self.query(x)
        mixed = functional.scaled_dot_product_attention(query[None], x[None], x[None])[0]
        scores = torch.einsum("bqd,bkd->bqk", query, mixed)
        return self.mix(query.flatten(0, 1), mixed.flatten(0, 1)), scores


@pytest.mark.parametrize(
    ("module", "args"),
    [
        (
            nn.Sequential(
                nn.Conv2d(8, 16, 3, groups=4), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=16)
            ),
            [empty(2, 8, 9, 9)],
        ),
        (
            nn.Sequential(nn.Conv2d(8, 8, 3), nn.ConvTranspose2d(8, 6, 3, stride=2, groups=2)),
            [empty(2, 8, 9, 9)],
        ),
        (
            nn.Sequential(nn.Conv1d(8, 8, 3, dilation=2), nn.Conv1d(8, 8, 3, dilation=3, stride=2)),
            [empty(2, 8, 40)],
        ),
        (
            nn.Sequential(nn.Conv3d(3, 4, 3), nn.BatchNorm3d(4), nn.ConvTranspose3d(4, 2, 2)),
            [empty(1, 3, 6, 6, 6)],
        ),
        (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), [empty(2, 5, 16)]),
        (nn.TransformerDecoderLayer(16, 2, 32, 0.0), [empty(5, 2, 16), empty(7, 2, 16)]),
        (nn.GRU(8, 12), [empty(5, 3, 8)]),
        (Deformed(), [empty(2, 8, 9, 9)]),
        (Solved(), [torch.rand(3, 4, 6)]),
        (
            nn.Sequential(nn.Embedding(20, 8), nn.LayerNorm(8), Contracted()),
            [torch.ones(3, 5, dtype=torch.int64)],
        ),
    ],
)
def test_a_training_step_has_the_flops_of_a_second_count(module, args):
    (counted, unknown), (expected, unknown_there) = both_counts(module, args)
    assert bool(unknown) == bool(unknown_there)
    assert unknown or counted == expected


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
