"""The memory of an iteration is what its tensors hold, by module, and tells which batch fits."""

import pickle
from dataclasses import replace

import opcost
import pytest
import torch
from click.testing import CliRunner
from opcost.commands import main
from opcost.costs.memory_use import largest_batch, memory_as_text, memory_use
from opcost.errors import OpcostError
from opcost.models.definition import InputSpec, ModelDefinition
from opcost.tuples.extraction import extract_model_tuples, extract_module_tuples
from opcost.tuples.model_tuples import read_model_tuples, write_model_tuples
from torch import nn

FLOAT = 4


class Net(nn.Module):
    """Two linear layers, and a sum that keeps the first result until the end."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 16)

    def forward(self, x):
        kept = self.first(x)
        return kept + self.second(torch.relu(kept))


@pytest.fixture(scope="module")
def net():
    return extract_module_tuples(Net(), [torch.zeros(2, 8)], "net")


def test_each_module_has_its_weights_and_what_it_made_of_the_peak(net):
    use = memory_use(net)
    result = 2 * 16 * FLOAT
    assert use.input_bytes == 2 * 8 * FLOAT
    assert use.weight_bytes == (8 * 16 + 16 + 16 * 16 + 16) * FLOAT
    assert (use.state_bytes, use.activation_peak_bytes) == (0, 3 * result)
    assert use.total_bytes == use.weight_bytes + use.input_bytes + 3 * result
    rows = {row["module"]: row for row in use.modules}
    assert rows["first"]["weight_bytes"] == (8 * 16 + 16) * FLOAT
    assert {path: row["at_peak_bytes"] for path, row in rows.items()} == {
        "first": result,
        "": result,  # relu
        "second": result,
    }
    assert rows["first"]["peak_bytes"] == result
    assert use.modules[0]["module"] == "second"


def test_the_peak_is_in_the_call_that_makes_it(net):
    use = memory_use(net)
    assert net.calls[use.peak_call].module_path == "second"
    text = " ".join(memory_as_text(use, top=2).split())
    assert "activations 384 B at their peak (in second, call 3 of 4)" in text
    assert "1 others" in text


def test_weights_that_modules_share_count_once():
    shared = nn.Linear(8, 8, bias=False)
    found = extract_module_tuples(
        nn.Sequential(shared, nn.ReLU(), shared), [torch.zeros(1, 8)], "n"
    )
    assert memory_use(found).weight_bytes == 64 * FLOAT


def test_the_memory_is_in_python_and_in_a_file_of_tuples(net, tmp_path):
    frame = opcost.explain(Net(), torch.zeros(2, 8)).memory
    assert list(frame) == ["module", "weight_bytes", "at_peak_bytes", "peak_bytes"]
    assert frame["at_peak_bytes"].sum() == memory_use(net).activation_peak_bytes
    write_model_tuples(tmp_path / "net.pkl", net)
    assert read_model_tuples(tmp_path / "net.pkl").memory == net.memory


def test_a_file_of_an_older_opcost_has_no_memory_and_says_so(net, tmp_path):
    path = tmp_path / "net.pkl"
    write_model_tuples(path, net)
    document = pickle.loads(path.read_bytes())
    del document["memory"]
    path.write_bytes(pickle.dumps(document))
    with pytest.raises(OpcostError, match=r"the memory of net is unknown.*extract it again"):
        memory_use(read_model_tuples(path))


def of_batch(batch):
    definition = ModelDefinition(
        "layer",
        (InputSpec((batch, 64)),),
        factory="torch.nn:Linear",
        arguments={"in_features": 64, "out_features": 32},
    )
    return memory_use(extract_model_tuples(definition))


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 57, 1000])
def test_the_largest_batch_fits_and_one_more_does_not(batch):
    budget = of_batch(batch).total_bytes
    for spare in (0, (64 + 32) * FLOAT - 1):
        found, use = largest_batch(of_batch, budget + spare)
        assert found == batch
        assert use.total_bytes <= budget + spare


def test_where_one_sample_does_not_fit_its_memory_is_said():
    with pytest.raises(OpcostError, match=r"one sample of layer needs .*: give more memory"):
        largest_batch(of_batch, of_batch(1).total_bytes - 1)


def test_a_memory_that_does_not_grow_with_the_batch_fits_none():
    with pytest.raises(OpcostError, match=r"more than 1,048,576 samples of layer fit"):
        largest_batch(lambda _: of_batch(1), 2**30)


def test_a_memory_that_grows_with_the_square_of_the_batch_needs_few_recordings(net):
    asked = []

    def use_of(batch):
        asked.append(batch)
        return replace(memory_use(net), activation_peak_bytes=4 * batch**2 + 1000 * (batch // 8))

    batch, _ = largest_batch(use_of, 2**30)
    assert use_of(batch).total_bytes <= 2**30 < use_of(batch + 1).total_bytes
    assert len(asked) < 40


def test_a_batch_that_is_part_of_the_sizes_cannot_vary():
    arguments = ["explain", "resnet18", "--input", "1x3x64x64", "--fit", "1GiB"]
    ran = CliRunner().invoke(main, arguments)
    assert "--fit varies the batch size" in ran.output
