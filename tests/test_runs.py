"""What a run's arguments stand for: model configs, targets, and the study of all runs."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from opcost.costs.model_argument import find_model, parse_input
from opcost.errors import OpcostError
from opcost.models.configs import load_model
from opcost.models.construction import build
from opcost.models.variants import Options, Variant, variants
from opcost.runs.configs import provide
from opcost.runs.study_file import RUN_STUDY, add_to_runs, read_studies
from opcost.runs.targets import AUTO, chosen_targets
from opcost.study import load_study

MODELS = Path("config/models")
ONE = {"device": "cpu"}
CPU = {"cpu": ONE}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    MODELS.mkdir(parents=True)
    return tmp_path


def options(inputs=(), **others):
    return Options(inputs=tuple(map(parse_input, inputs)), **others)


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
        ("resnet50", options(["8x3x56x56"]), {"resnet50_b8_3x56x56": [(8, 3, 56, 56)]}),
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
        ("nets:tagger", options(["8"], batches=(2,)), {"tagger_b2": [(2, 8)]}),
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
        ("gone.py", options(["8"]), "there is no file gone.py"),
        ("nets.py", options(["8"]), "It defines nets.py:tagger, nets.py:Net"),
        ("empty.py", options(["8"]), "as FILE.py:NAME; it defines none"),
        ("nets.py:tagger", options(), "the inputs of nets.py:tagger are unknown"),
        ("small", options(["1x8"]), "defines inputs, dtype and arguments"),
        ("listed", options(batches=(2,)), "its inputs have no batch dimension"),
        ("absent.yaml", options(), "absent.yaml: No such file"),
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


def test_a_config_that_says_the_same_is_reused_and_none_is_changed():
    small = {"model": "resnet34", "inputs": [{"shape": [1, 3, 56, 56]}]}
    other = {"model": "resnet18", "inputs": [{"shape": [1, 3, 56, 56]}]}
    (MODELS / "small.yaml").write_text(yaml.safe_dump(small))
    (MODELS / "taken.yaml").write_text(yaml.safe_dump(other))
    (MODELS / "broken.yaml").write_text("[")
    wanted = [Variant("resnet34_b1", small), Variant("taken", {**other, "dtype": "bfloat16"})]
    assert provide(wanted, MODELS) == (["small", "taken_2"], ["taken_2"])
    assert provide(wanted, MODELS) == (["small", "taken_2"], [])
    assert load_model("taken", MODELS).dtype is None


def test_nothing_is_written_if_one_of_the_models_can_have_no_config():
    good = Variant("good", {"model": "resnet18", "inputs": [{"shape": [1, 3, 56, 56]}]})
    for wrong in (Variant("wrong", {**good.config, "dtype": "int4"}), Variant("", good.config)):
        with pytest.raises(OpcostError):
            provide([good, wrong], MODELS)
    assert not list(MODELS.iterdir())


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
    [name], _ = provide(variants(argument, options(["1x10"]), MODELS), MODELS)
    for module in (build(explained, folder), build(load_model(name, MODELS), MODELS)):
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


def test_a_factory_with_other_inputs_has_their_sizes_in_its_name():
    Path("nets.py").touch()
    given = [options([size], batches=(2,)) for size in ("8", "16", "8")]
    names = [provide(variants("nets.py:tagger", each, MODELS), MODELS)[0] for each in given]
    assert names == [["tagger_b2"], ["tagger_b2_16"], ["tagger_b2"]]


@pytest.mark.parametrize("place", ["nets.py", "elsewhere/nets.py", "config/models/nets.py"])
def test_a_factory_in_any_file_is_found_and_its_code_is_part_of_the_definition(place, monkeypatch):
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    file = Path(place)
    file.parent.mkdir(exist_ok=True)
    text = "from torch import nn\ndef tagger(): return nn.Linear(8, {})\n"
    given, digests = options(["1x8"]), []
    for size in (2, 3):
        file.write_text(text.format(size))
        [variant] = variants(f"{file}:tagger", given, MODELS)
        [name], _ = provide([variant], MODELS)
        definition = load_model(name, MODELS)
        digests.append(definition.source_digest)
    assert name == "tagger_1x8"
    assert None not in digests
    assert digests[0] != digests[1]
    assert build(definition, MODELS).out_features == 3


def test_a_config_of_another_folder_finds_its_factory():
    Path("mine").mkdir()
    Path("mine/nets.py").write_text("def tagger(): ...\n")
    config = {"factory": "nets:tagger", "inputs": [{"shape": [1, 8]}]}
    Path("mine/small.yaml").write_text(yaml.safe_dump(config))
    [variant] = variants("mine/small.yaml", options(), MODELS)
    assert variant == Variant("small", {**config, "factory": "../../mine/nets.py:tagger"})


@pytest.mark.parametrize(
    ("study", "known", "device", "threads", "expected"),
    [
        (AUTO, {}, None, (), {"local": {"device": "auto"}}),
        (AUTO, {}, None, (2,), {"local_2_threads": {"device": "auto", "threads": 2}}),
        (AUTO, {}, "cpu", (), {"cpu": ONE}),
        (
            AUTO,
            {},
            "cpu",
            (1, 2),
            {"cpu": {**ONE, "threads": 1}, "cpu_2_threads": {**ONE, "threads": 2}},
        ),
        (AUTO, {}, "cuda:1", (), {"cuda_1": {"device": "cuda:1"}}),
        ({"mine": {**ONE, "threads": 1}}, {}, "cpu", (), {"mine": {**ONE, "threads": 1}}),
        (AUTO, {"cpu": {**ONE, "tf32": True}}, "cpu", (), {"cpu_2": ONE}),
    ],
)
def test_targets_are_those_of_the_study_or_have_telling_names(
    study, known, device, threads, expected
):
    assert chosen_targets(study, known, device, threads) == expected


def written():
    return yaml.safe_load(RUN_STUDY.read_text())


def test_without_a_study_a_model_has_to_be_named():
    with pytest.raises(OpcostError, match="name a MODEL, such as resnet18: this folder has no"):
        read_studies().written_by_user()


def test_runs_add_to_each_other_and_leave_out_what_has_vanished():
    config = {"factory": "../../nets.py:tagger", "inputs": [{"shape": [1, 8]}]}
    for name in ("one", "two"):
        (MODELS / f"{name}.yaml").write_text(yaml.safe_dump(config))
    Path("nets.py").touch()
    studies = read_studies()  # of two runs that begin at once
    assert add_to_runs(studies, ["one"], AUTO) == {}
    assert add_to_runs(studies, ["two"], CPU) == {}
    assert add_to_runs(read_studies(), ["one"], AUTO) == {}
    assert written() == {"models": ["one", "two"], "targets": {**AUTO, **CPU}}
    (MODELS / "two.yaml").unlink()
    [[name, reason]] = add_to_runs(read_studies(), ["one"], AUTO).items()
    assert (name, written()["models"]) == ("two", ["one"])
    assert "there is no model config config/models/two.yaml" in reason
    Path("nets.py").unlink()
    [reason] = add_to_runs(read_studies(), [], AUTO).values()
    assert "there is no file" in reason


def test_a_change_of_the_study_changes_its_target_in_the_runs_as_well():
    add_to_runs(read_studies(), [], AUTO)
    Path("config/config.yaml").write_text(json.dumps({"targets": {"local": {"device": "cpu"}}}))
    add_to_runs(read_studies(), [], CPU)
    assert written()["targets"] == {"local": {"device": "cpu"}, **CPU}


def test_a_restricted_study_needs_only_the_models_that_it_names():
    config = {"model": "resnet18", "inputs": [{"shape": [1, 3, 56, 56]}]}
    (MODELS / "one.yaml").write_text(yaml.safe_dump(config))
    study = {"models": ["one", "gone"], "targets": CPU, "only": {"cpu": ["one"]}}
    assert set(load_study(study).models) == {"one"}
    for only, message in (
        ({"cpu": ["gone"]}, "there is no model config"),
        ({"gpu": []}, "only.gpu: 'gpu' is not among `targets`"),
        ({"cpu": ["two"]}, "only.cpu: 'two' is not among `models`"),
    ):
        with pytest.raises(OpcostError, match=message):
            load_study({**study, "only": only})
