"""Trained weights of a file or of torchvision's cache: nothing is downloaded, no code executed."""

import hashlib
import os
import sys
from pathlib import Path

import pytest
import torch
from opcost.errors import OpcostError
from opcost.models import trained_weights
from opcost.models.configs import define_models
from opcost.models.construction import build
from opcost.models.source import ChangedSource
from opcost.models.variants import Options, variants
from opcost.tuples.calls import model_calls
from safetensors.torch import save_file
from torch import nn

NET = """
from torch import nn

def build(width=4, tied=False):
    net = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 8))
    if tied:
        net.append(nn.Linear(width, 8))
        net[3].weight = net[2].weight
    return net
"""


class Payload:
    def __reduce__(self):
        return os.system, ("touch executed",)


def net(width=4):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 8))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def definition(weights, directory, **config):
    code = {"factory": "net:build"} if "model" not in config else {}
    document = {**code, "inputs": [{"shape": [2, 8]}], "weights": str(weights), **config}
    return define_models("net", document, directory, "net.yaml").models["net"]


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_a_model_has_the_weights_of_its_file_at_any_dtype(here, suffix):
    trained = net().state_dict()
    save = {"pt": torch.save, "safetensors": save_file}[suffix]
    save(trained, here / f"trained.{suffix}")
    defined = definition(f"trained.{suffix}", here, dtype="float64")
    assert "random" not in defined.to_json()
    found = build(defined, here).state_dict()
    assert all(torch.equal(found[name], each.double()) for name, each in trained.items())
    assert len(model_calls(defined, here).calls) == 3


def test_weights_that_modules_share_may_be_in_a_file_once(here):
    state = net().state_dict()
    tied = {**state, "3.bias": torch.zeros(8)}
    save_file(tied, here / "tied.safetensors")
    defined = definition("tied.safetensors", here, arguments={"tied": True})
    assert torch.equal(build(defined, here)[3].weight, state["2.weight"])


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_models_of_transformers_take_a_file(here, suffix, capfd):
    transformers = pytest.importorskip("transformers")
    small = {"vocab_size": 100, "n_embd": 32, "n_layer": 1, "n_head": 4}
    trained = transformers.GPT2LMHeadModel(transformers.GPT2Config(**small))
    state = {name: each for name, each in trained.state_dict().items() if name != "lm_head.weight"}
    {"pt": torch.save, "safetensors": save_file}[suffix](state, here / f"gpt2.{suffix}")
    defined = definition(
        f"gpt2.{suffix}",
        here,
        model="transformers:GPT2LMHeadModel",
        arguments=small,
        inputs={"input_ids": {"shape": [1, 4], "dtype": "int64", "high": 100}},
    )
    assert torch.equal(build(defined, here).lm_head.weight, trained.lm_head.weight)
    assert model_calls(defined, here).calls
    assert "Traceback" not in capfd.readouterr().err


def test_other_weights_are_another_model_which_is_extracted_and_measured_again(here):
    torch.save(net().state_dict(), here / "trained.pt")
    before = definition("trained.pt", here)
    torch.save(net().state_dict(), here / "trained.pt")
    assert definition("trained.pt", here).to_json() != before.to_json()
    with pytest.raises(ChangedSource, match=r"weights 'trained.pt' .* has changed since the run"):
        build(before, here)


def test_a_config_elsewhere_names_weights_beside_it(here):
    folder = here / "elsewhere"
    folder.mkdir()
    torch.save(net().state_dict(), folder / "trained.pt")
    (folder / "mine.yaml").write_text(
        "{factory: ../net.py:build, weights: trained.pt, inputs: [{shape: [2, 8]}]}"
    )
    [variant] = variants("elsewhere/mine.yaml", Options(), here)
    assert variant.config["weights"] == "elsewhere/trained.pt"


def sparse(name):
    with open(name, "wb") as file:
        file.truncate(10 * 2**40)


def saved(content, name="bad.pt"):
    torch.save(content, name)


@pytest.mark.parametrize(
    ("make", "name", "message"),
    [
        (lambda: None, "bad.pt", r"there is no file .*/bad.pt, which `weights: bad.pt` names"),
        (lambda: saved(net(16).state_dict()), "bad.pt", r"another model: size mismatch for 0.wei"),
        (
            lambda: saved({"0.weight": torch.ones(4, 8), "head": torch.ones(1)}),
            "bad.pt",
            r"model net: the weights in .*bad.pt are of another model: 3 of 4 names of the model "
            r"are missing \(0.bias, 2.weight, 1 other\), 1 of 2 names in the file are unexpected "
            r"\(head\)",
        ),
        (lambda: saved(Payload()), "bad.pt", "refused because they could execute code"),
        (lambda: saved({"0.weight": Payload()}), "bad.pt", "they could execute code"),
        (lambda: saved(net()), "bad.pt", r"save those of the model: torch.save\(model.state_dict"),
        (
            lambda: saved({"epoch": 3, "model": net().state_dict()}),
            "bad.pt",
            "holds a dict that has epoch, model, not tensors by name",
        ),
        (lambda: saved({1: torch.ones(2)}), "bad.pt", "holds a dict that has 1, not tensors by"),
        (lambda: sparse("bad.pt"), "bad.pt", "bad.pt have 10,240 GiB; allowed: up to 1,024 GiB"),
        (lambda: Path("bad.pt").write_text("no weights"), "bad.pt", "cannot be read as weights"),
        (
            lambda: Path("bad.safetensors").write_text("no weights"),
            "bad.safetensors",
            "cannot be read as weights: it is incomplete",
        ),
    ],
)
def test_a_file_without_the_weights_of_the_model_is_one_sentence_and_executes_nothing(
    here, make, name, message
):
    make()
    with pytest.raises(OpcostError, match=message):
        build(definition(name, here), here)
    assert not (here / "executed").exists()


def test_weights_larger_than_free_memory_are_refused(here, monkeypatch):
    saved(net().state_dict())
    monkeypatch.setattr(trained_weights, "free_bytes", lambda: 100)
    with pytest.raises(OpcostError, match=r"need .* GiB; .* GiB of memory are free"):
        build(definition("bad.pt", here), here)


def test_safetensors_without_its_package_says_how_to_install_it(here, monkeypatch):
    save_file(net().state_dict(), here / "net.safetensors")
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(OpcostError, match="python -m pip install safetensors"):
        build(definition("net.safetensors", here), here)


IMAGE = {"model": "resnet18", "inputs": [{"shape": [1, 3, 32, 32]}]}


@pytest.fixture
def cache(here):
    before = torch.hub.get_dir()
    torch.hub.set_dir(str(here / "hub"))
    yield here / "hub/checkpoints"
    torch.hub.set_dir(before)


def test_named_weights_are_those_in_the_cache_of_torchvision(here, cache, monkeypatch):
    import torchvision

    trained = torchvision.models.resnet18()
    cache.mkdir(parents=True)
    torch.save(trained.state_dict(), cache / "resnet18-f37072fd.pth")
    defined = definition("IMAGENET1K_V1", here, **IMAGE)
    with pytest.raises(OpcostError, match=r"f37072fd.pth is incomplete or another file: delete it"):
        build(defined, here)
    digest = hashlib.sha256((cache / "resnet18-f37072fd.pth").read_bytes()).hexdigest()
    (cache / "resnet18-f37072fd.pth").rename(cache / f"resnet18-{digest[:8]}.pth")
    published = torchvision.models.ResNet18_Weights
    monkeypatch.setattr(published, "url", f"https://host/resnet18-{digest[:8]}.pth")
    assert torch.equal(build(defined, here).fc.weight, trained.fc.weight)


@pytest.mark.parametrize(
    ("weights", "config", "message"),
    [
        (
            "IMAGENET1K_V1",
            IMAGE,
            r"model net: ResNet18_Weights.IMAGENET1K_V1 are not in .*/hub/checkpoints, and opcost "
            r"downloads nothing: python -c .*get_weight\('ResNet18_Weights.IMAGENET1K_V1'\)",
        ),
        ("IMAGENET1K_V7", IMAGE, r"no weights 'IMAGENET1K_V7' of resnet18, only IMAGENET1K_V1"),
        ("IMAGENET1K_V1", {}, "only torchvision's models have named weights: give a file"),
    ],
)
def test_named_weights_that_are_not_there_say_how_to_get_them(
    here, cache, weights, config, message
):
    with pytest.raises(OpcostError, match=message):
        build(definition(weights, here, **config), here)
