"""Which weights calls use together, and how often a pass comes back to them."""

import pytest
import torch
from opcost.tuples.extraction import extract_module_tuples
from opcost.tuples.model_tuples import read_model_tuples, write_model_tuples
from opcost.tuples.weights import Weight, WeightGroup
from torch import nn


def groups_of(module, *inputs):
    found = extract_module_tuples(module, inputs, "net").weights
    return {tuple(weight.name for weight in group.weights): group for group in found}


def test_weights_that_a_call_uses_are_a_group_of_its_module():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    found = groups_of(net, torch.randn(2, 3))
    assert [*found] == [
        ("0.weight", "0.bias"),
        ("1.weight", "1.bias", "1.running_mean", "1.running_var"),
        ("1.num_batches_tracked",),
    ]
    linear, normalisation, unused = found.values()
    assert (linear.module_path, linear.bytes, linear.uses) == ("0", 4 * (3 * 4 + 4), 1)
    assert (normalisation.module_path, normalisation.uses) == ("1", 1)
    assert unused.uses == 0


class Tied(nn.Module):
    """An embedding whose weight is also that of the last layer, as of language models."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.inner = nn.Linear(4, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for _ in range(3):
            hidden = self.inner(hidden)
        return self.head(hidden)


def test_shared_weights_are_one_and_are_used_again_only_after_others():
    found = groups_of(Tied(), torch.zeros(2, dtype=torch.int64))
    assert {names: group.uses for names, group in found.items()} == {
        ("embedding.weight",): 2,
        ("inner.weight", "inner.bias"): 1,
    }


class Looped(nn.Module):
    """Calls one layer several times, and another once."""

    def __init__(self, times):
        super().__init__()
        self.times = times
        self.inner, self.last = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

    def forward(self, x):
        for _ in range(self.times):
            x = self.inner(x)
        return self.last(x)


@pytest.mark.parametrize(
    ("module", "argument", "share"),
    [
        (Looped(1), torch.zeros(1, 4), 0.0),
        (Looped(12), torch.zeros(1, 4), 1 - 2 / 13),  # 13 calls read 2 different weights
        (nn.BatchNorm2d(3).eval(), torch.zeros(1, 3, 2, 2), 0.0),
        # The embedding reads 2 of the 10 entries that the last layer reads as a whole.
        (Tied(), torch.zeros(2, dtype=torch.int64), 1 - (40 + 20) / (3 * 20 + 40)),
    ],
    ids=["once", "looped", "buffers", "tied to a table"],
)
def test_the_share_of_weights_that_a_pass_reads_again(module, argument, share):
    found = extract_module_tuples(module, [argument], "net").weights_read_again
    assert found == pytest.approx(share)


class Joined(nn.Module):
    """Uses each of its weights with the next one."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Parameter(torch.ones(4)) for _ in range(3))

    def forward(self, x):
        return x * (self.first + self.second) + (self.second - self.third)


def test_weights_are_together_by_way_of_others_and_views_use_none():
    [group] = groups_of(Joined(), torch.ones(4)).values()
    assert (group.module_path, len(group.weights), group.uses) == ("", 3, 1)
    square = nn.Linear(4, 4, bias=False)
    viewed = groups_of(nn.Sequential(square), torch.ones(1, 4))
    assert viewed[("0.weight",)].uses == 1


def test_the_innermost_module_that_holds_a_group():
    weights = (Weight("encoder.layer.10.weight", 1), Weight("encoder.layer.1.bias", 1))
    assert WeightGroup(weights, 1).module_path == "encoder.layer"


def test_weights_are_read_back(tmp_path):
    path = tmp_path / "net.pkl"
    extracted = extract_module_tuples(nn.Linear(2, 3), [torch.ones(1, 2)], "net")
    write_model_tuples(path, extracted)
    assert read_model_tuples(path) == extracted
