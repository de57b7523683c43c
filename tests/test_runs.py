"""What a run's arguments stand for: models, targets, and the keys of a study."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from opcost.costs.model_argument import find_model, parse_input
from opcost.errors import OpcostError
from opcost.models.construction import build
from opcost.models.variants import Options, Variant, variants
from opcost.runs.request import asked_again, default_request, narrowed, request
from opcost.runs.targets import AUTO, chosen_targets

MODELS = Path("config/models")
ONE = {"device": "cpu"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # which a search for models adds to
    MODELS.mkdir(parents=True)
    return tmp_path


def options(inputs=(), **others):
    return Options(inputs=tuple(map(parse_input, inputs)), **others)


def requested(*asked):
    return request(asked, None, (), {})


def models_of(argument, given):
    """The models that are measured, by name."""
    return requested(*variants(argument, given, MODELS)).study.models


@pytest.fixture
def measured(monkeypatch):
    """The models that were measured in this folder, by name; to be added to."""
    known = {}
    monkeypatch.setattr("opcost.runs.request.newest_definitions", lambda results: known)
    return known


def shapes(found):
    return {each.name: [tuple(spec["shape"]) for spec in each.config["inputs"]] for each in found}


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        ("resnet50", options(), {"resnet50_b1": [(1, 3, 224, 224)]}),
        (
            "resnet50",
            options(batches=(1, 8)),
            {"resnet50_b1": [(1, 3, 224, 224)], "resnet50_b8": [(8, 3, 224, 224)]},
        ),
        (
            "resnet50",
            options(["3x56x56"], batches=(8,)),
            {"resnet50_b8_3x56x56": [(8, 3, 56, 56)]},
        ),
        ("resnet50", options(["8x3x224x224"]), {"resnet50_b8": [(8, 3, 224, 224)]}),
        ("raft_small", options(batches=(2,)), {"raft_small_b2": [(2, 3, 512, 512)] * 2}),
        ("ssd300_vgg16", options(batches=(2,)), {"ssd300_vgg16_b2": [(3, 300, 300)] * 2}),
        (
            "ssd300_vgg16",
            options(["3x64x64", "3x32x32"]),
            {"ssd300_vgg16_b2_3x64x64_3x32x32": [(3, 64, 64), (3, 32, 32)]},
        ),
        (
            "vit_b_[13]*",
            options(),
            {f"vit_b_{size}_b1": [(1, 3, 224, 224)] for size in (16, 32)},
        ),
        ("nets.py:tagger", options(["2x8"]), {"tagger_2x8": [(2, 8)]}),
        (
            "nets.py:build",
            options(["8", "3x4"], batches=(2,)),
            {"nets_b2": [(2, 8), (2, 3, 4)]},
        ),
        ("small", options(), {"small": [(1, 8)]}),
        ("config/models/small.yaml", options(batches=(4,)), {"small_b4": [(4, 8)]}),
    ],
)
def test_a_model_stands_for_a_config_of_each_batch_size(model, given, expected):
    Path("nets.py").touch()
    config = {"factory": "nets:tagger", "inputs": [{"shape": [1, 8]}]}
    (MODELS / "small.yaml").write_text(yaml.safe_dump(config))
    assert shapes(variants(model, given, MODELS)) == expected


def test_a_name_tells_what_is_not_at_a_default():
    given = Options((8,), dtypes=("float32", "bfloat16"), channels_last=True)
    given = replace(given, arguments={"num_classes": 10})
    names = [each.name for each in variants("resnet18", given, MODELS)]
    stem = "resnet18_b8_num_classes_10_channels_last"
    assert names == [stem, f"{stem}_bfloat16"]
    Path("nets.py").touch()
    given = options(["1x8"], dtypes=(None, "float32", "float64"))
    stated = [each.config.get("dtype") for each in variants("nets.py:tagger", given, MODELS)]
    assert stated == [None, "float32", "float64"]


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        ("resnet51", options(), "Did you mean 'resnet50'"),
        ("resnt*", options(), "matches no model of torchvision"),
        ("resnet50", options(["3x56x56"]), "give --input 1x3x56x56, or --batch 1 as well"),
        ("resnet50", options(["8"], batches=(1,)), "resnet50 takes inputs of 3 dimensions"),
        ("resnet50", options(["8x8"]), "give --input 1x3x224x224, for example"),
        ("gone.py:tagger", options(["8"]), "there is no file gone.py"),
        ("nets.py", options(["8"]), "It defines nets.py:tagger, nets.py:Net"),
        ("empty.py", options(["8"]), "as FILE.py:NAME; it defines none"),
        ("nets.py:tagger", options(), "the inputs of nets.py:tagger are unknown"),
        ("small", options(["1x8"]), "defines inputs, dtype and arguments"),
        ("listed", options(batches=(2,)), "its inputs have no batch dimension"),
    ],
)
def test_what_is_no_model_is_explained(model, given, message):
    Path("nets.py").write_text("def tagger(): ...\ndef _own(): ...\nclass Net: ...\n")
    Path("empty.py").touch()
    for name, in_list in (("small", False), ("listed", True)):
        config = {"model": "x", "inputs": [{"shape": [3, 8]}], "inputs_in_list": in_list}
        (MODELS / f"{name}.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(OpcostError, match=message.replace("(", r"\(")):
        variants(model, given, MODELS)


IMAGE = {"inputs": [{"shape": [1, 3, 56, 56]}]}


def test_a_model_is_named_where_a_file_or_torchvision_says_the_same_and_else_written_out():
    small, other = {"model": "resnet34", **IMAGE}, {"model": "resnet18", **IMAGE}
    (MODELS / "small.yaml").write_text(yaml.safe_dump(small))
    (MODELS / "taken.yaml").write_text(yaml.safe_dump(other))
    (MODELS / "broken.yaml").write_text("[")
    before = {path: path.read_text() for path in MODELS.iterdir()}
    bfloat16 = {**other, "dtype": "bfloat16"}
    asked = [Variant("resnet34_b1", small), Variant("taken", bfloat16), *official("resnet50")]
    found = requested(*asked)
    assert found.settings["models"] == ["small", {"name": "taken_2", **bfloat16}, "resnet50"]
    assert [*found.study.models] == ["small", "taken_2", "resnet50"]
    assert {path: path.read_text() for path in MODELS.iterdir()} == before


def official(*models):
    return [each for model in models for each in variants(model, options(), MODELS)]


@pytest.mark.parametrize("model", ["resnet18", "ssd300_vgg16", "raft_small", "r3d_18"])
def test_a_model_of_torchvision_is_the_one_of_its_name_in_a_study(model):
    found = requested(*official(model))
    assert found.settings["models"] == [model]
    [variant] = official(model)
    (MODELS / f"{model}.yaml").write_text(yaml.safe_dump({"model": "alexnet", **IMAGE}))
    assert requested(*official(model)).settings["models"] == [
        {"name": variant.name, **variant.config}
    ]


def test_a_study_that_chooses_from_torchvision_does_not_for_other_models():
    study = {"torchvision": {"names": ["alexnet"]}, "targets": {"local": ONE}}
    Path("config/config.yaml").write_text(yaml.safe_dump(study))
    found = requested(*official("resnet18"))
    assert found.settings == {"models": ["resnet18"], "torchvision": None}
    assert [*found.study.models] == ["resnet18"]
    assert [*default_request({}).study.models] == ["alexnet"]


def test_a_model_that_no_study_can_have_is_refused():
    good = Variant("good", {"model": "resnet18", **IMAGE})
    for wrong in (Variant("wrong", {**good.config, "dtype": "int4"}), Variant("", good.config)):
        with pytest.raises(OpcostError):
            requested(good, wrong)


@pytest.mark.parametrize(
    ("file", "argument"),
    [
        ("pkg/nets/net.py", "pkg/nets/net.py:build"),  # with a relative import
        ("pkg_2/nets/net.py", "pkg_2.nets.net:build"),
        ("net v2.py", "net v2.py:build"),
        ("net-ä.v2.py", "net-ä.v2.py:build"),
        ("2nd.py", "2nd.py:build"),
        (".hidden.py", ".hidden.py:build"),
        ("résumé.py", "résumé:build"),
        ("random.py", "random.py:build"),
        ("random.py", "random:build"),
        ("test.py", "test:Makers.build"),
    ],
)
def test_a_factory_is_found_by_all_commands_whatever_the_name_of_its_file(file, argument):
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    size = "9"
    if file.startswith("pkg"):
        size = "SIZE"
        nets = Path(file).parent
        for package in (nets, nets.parent):
            (package / "__init__.py").touch()
        (nets.parent / "sizes.py").write_text("SIZE = 9\n")
    Path(file).write_text(
        f"from torch import nn\n{'from ..sizes import SIZE' if size == 'SIZE' else ''}\n"
        f"def build(): return nn.Linear(10, {size})\nclass Makers: build = staticmethod(build)\n"
    )
    explained, folder = find_model(argument, Options(inputs=(parse_input("1x10"),)))
    [measured] = models_of(argument, options(["1x10"])).values()
    for module in (build(explained, folder), build(measured, MODELS)):
        assert module.out_features == 9


SCRIPT = """
import argparse
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=40)
width = parser.parse_args().width


def build():
    return nn.Linear(10, width + parser.parse_args().width)
"""


def test_a_factory_of_a_script_that_parses_arguments_sees_none(monkeypatch):
    Path("train.py").write_text(SCRIPT)
    monkeypatch.setattr(sys, "argv", ["opcost", "explain", "train.py:build", "--input", "1x10"])
    definition, folder = find_model("train.py:build", Options(inputs=(parse_input("1x10"),)))
    assert build(definition, folder).out_features == 80
    assert sys.argv[1] == "explain"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("instance", "is an instance of Linear: name a function that returns the module, or its"),
        ("pair", "returned a tuple; it must return an nn.Module, and nothing beside it"),
        ("later", "returned a coroutine; it must return"),
        ("each", "returned a generator; it must return"),
        ("sized", "missing 1 required positional argument: 'width'. Give others as NAME=VALUE"),
        ("on_meta", "its weight is on the meta device, without values"),
        ("2nd", "'2nd' is no name in Python"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_is_no_factory_is_explained(name, message):
    Path("odd_factories.py").write_text(
        "from torch import nn\ninstance = nn.Linear(10, 9)\n"
        "def pair(): return instance, 3\nasync def later(): return instance\n"
        "def each(): yield instance\ndef sized(width): return nn.Linear(10, width)\n"
        "def on_meta(): return nn.Linear(10, 9, device='meta')\n"
    )
    with pytest.raises(OpcostError, match=message):
        build(*find_model(f"odd_factories.py:{name}", Options(inputs=(parse_input("1x10"),))))


def test_another_model_than_those_measured_has_another_name(measured):
    Path("nets.py").touch()
    names = []
    for size in ("8", "16", "16:float64", "8"):
        found = models_of("nets.py:tagger", options([size], batches=(2,)))
        names += found
        measured |= found
    assert names == ["tagger_b2", "tagger_b2_16", "tagger_b2_16_2", "tagger_b2"]


def test_a_model_whose_code_has_changed_keeps_its_name(measured):
    for code in ("def tagger(): ...\n", "def tagger(): return 1\n"):
        Path("nets.py").write_text(code)
        found = models_of("nets.py:tagger", options(["1x8"]))
        assert [*found] == ["tagger_1x8"]
        assert measured != found
        measured |= found


def test_a_config_that_was_edited_keeps_the_name_of_its_file(measured):
    Path("mine").mkdir()
    for dtype in ("float32", "bfloat16"):
        config = {"model": "resnet18", **IMAGE, "dtype": dtype}
        Path("mine/net.yaml").write_text(yaml.safe_dump(config))
        for given, name in ((options(), "net"), (options(batches=(2,)), "net_b2")):
            found = models_of("mine/net.yaml", given)
            assert [*found] == [name]
            measured |= found


def test_what_was_asked_for_can_be_asked_for_again_in_part():
    config = {"model": "resnet18", **IMAGE}
    asked = {
        "models": [
            {"name": "swept", **config, "axes": {"dtype": ["float32", "bfloat16"]}},
            "vgg11",
        ],
        "torchvision": {"names": ["alexnet", "resnet18"]},
        "targets": {"cpu": ONE},
        "rounds": 9,
    }
    Path("config/config.yaml").write_text(yaml.safe_dump({"targets": {"cpu": ONE}, "rounds": 2}))
    again = asked_again(asked, {"max_device_time_s": 5})
    assert (again.study.rounds, again.settings["max_device_time_s"]) == (2, 5)
    again = asked_again(asked, {})
    assert "targets" not in again.settings
    part = narrowed(again, {"swept[dtype=bfloat16]", "alexnet"})
    assert [*part.study.models] == [*again.study.models_of("swept"), "alexnet"]
    assert narrowed(again, {"vgg11"}).settings == {"models": ["vgg11"], "torchvision": None}


@pytest.mark.parametrize("place", ["nets.py", "elsewhere/nets.py", "config/models/nets.py"])
def test_a_factory_in_any_file_is_found_and_its_code_is_part_of_the_definition(place, monkeypatch):
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    file = Path(place)
    file.parent.mkdir(exist_ok=True)
    text = "from torch import nn\ndef tagger(): return nn.Linear(8, {})\n"
    given, digests = options(["1x8"]), []
    for size in (2, 3):
        file.write_text(text.format(size))
        [definition] = models_of(f"{file}:tagger", given).values()
        digests.append(definition.source_digest)
    assert definition.name == "tagger_1x8"
    assert None not in digests
    assert digests[0] != digests[1]
    assert build(definition, MODELS).out_features == 3


def test_a_config_of_another_folder_finds_its_factory():
    Path("mine").mkdir()
    Path("mine/nets.py").write_text("def tagger(): ...\n")
    config = {"factory": "nets:tagger", "inputs": [{"shape": [1, 8]}]}
    Path("mine/small.yaml").write_text(yaml.safe_dump(config))
    [variant] = variants("mine/small.yaml", options(), MODELS)
    assert variant.name == "small"
    assert variant.config == {**config, "factory": "../../mine/nets.py:tagger"}


@pytest.mark.parametrize(
    ("study", "device", "threads", "expected"),
    [
        (AUTO, None, (), {"local": {"device": "auto"}}),
        (AUTO, None, (2,), {"local_2_threads": {"device": "auto", "threads": 2}}),
        (AUTO, "cpu", (), {"cpu": ONE}),
        (
            AUTO,
            "cpu",
            (1, 2),
            {"cpu": {**ONE, "threads": 1}, "cpu_2_threads": {**ONE, "threads": 2}},
        ),
        (AUTO, "cuda:1", (), {"cuda_1": {"device": "cuda:1"}}),
        ({"mine": {**ONE, "threads": 1}}, "cpu", (), {"mine": {**ONE, "threads": 1}}),
        ({"cpu": {**ONE, "tf32": True}}, "cpu", (), {"cpu_2": ONE}),
    ],
)
def test_targets_are_those_of_the_study_or_have_telling_names(study, device, threads, expected):
    assert chosen_targets(study, device, threads) == expected


def test_only_targets_that_the_study_has_not_are_stated():
    axes = {"local": {**ONE, "axes": {"threads": [1, 2]}}}
    for study, device, stated in (
        ({}, None, AUTO),
        ({"targets": axes}, None, None),
        ({"targets": axes}, "cpu", {"local[threads=1]": {**ONE, "threads": 1}}),
        ({"targets": {"mine": ONE, "other": {**ONE, "threads": 2}}}, "cpu", {"mine": ONE}),
    ):
        Path("config/config.yaml").write_text(yaml.safe_dump(study))
        found = request(official("resnet18"), device, (), {})
        assert found.settings.get("targets") == stated


def test_without_a_study_a_model_has_to_be_named():
    with pytest.raises(OpcostError, match="name a MODEL, such as resnet18: this folder has no"):
        default_request({})
