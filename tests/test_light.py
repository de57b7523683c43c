"""What reads data needs neither PyTorch nor Snakemake, and knows the calls of usual models."""

import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest
from opcost.models.zoo import official_inputs, select
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.shipped_calls import SHIPPED, VERSIONS, shipped_calls

from tests.comparisons import database

WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Missing(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Missing
sys.argv[0] = "opcost"
from opcost.commands import main
main()
"""
HEAVY = ("torch", "torchvision", "snakemake", "altair", "jinja2", "vl_convert", "itables")


def without(packages, *arguments, cwd=None):
    """opcost in a Python that lacks these packages."""
    code = WITHOUT.format(packages=set(packages))
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["query", "-d", "h100", "--limit", "3"],
        ["merge", "one.parquet", "two.parquet", "-o", "merged.parquet"],
        ["diff", "one.parquet", "two.parquet"],
        ["export", "h100", "operators.csv"],
        ["export", "h100", "features.csv", "--features"],
        ["publish", "published", "one.parquet", "--author", "Lovelace, Ada"],
        ["explain", "resnet50", "--batch", "32", "-d", "h100"],
        ["explain", "resnet50", "--batch", "32", "-d", "h100", "--memory", "--per", "10 images"],
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[-1:]),
)
def test_data_are_read_without_pytorch_and_snakemake(arguments, tmp_path, tiny_tuples):
    for name, time_s in (("one", 1e-3), ("two", 1.001e-3)):
        database(tmp_path / f"{name}.parquet", tiny_tuples, time_s=time_s)
    ran = without(HEAVY, *arguments, cwd=tmp_path)
    assert ran.returncode in (0, 4), ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_report_of_a_database_needs_the_extra_for_reports_alone(tmp_path):
    ran = without(HEAVY[:3], "report", "h100", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "report.html").is_file()
    ran = without(HEAVY, "report", "h100", cwd=tmp_path)
    assert ran.returncode == 1
    assert "python -m pip install 'opcost[report]'" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["explain", "resnet50", "--input", "1x3x64x64"],
            "to find the operators of resnet50",
        ),
        (["import", "x.csv", "--source", "https://x", "-o", "y.parquet"], "this needs torch"),
    ],
)
def test_what_needs_pytorch_says_how_to_install_it(arguments, said, tmp_path):
    ran = without(HEAVY, *arguments, cwd=tmp_path)
    assert ran.returncode == 1
    assert said in ran.stderr
    assert "python -m pip install 'opcost[measure]'" in ran.stderr


@pytest.mark.parametrize("call", ["opcost.time(len, 'x')", "opcost.run('resnet18')"])
def test_functions_that_need_pytorch_say_how_to_install_it(call):
    code = WITHOUT.format(packages=set(HEAVY)).partition("sys.argv")[0]
    code += f"import opcost\ntry: {call}\nexcept opcost.errors.OpcostError as error: print(error)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout == "this needs torch: python -m pip install 'opcost[measure]'\n", ran.stderr


@pytest.mark.parametrize("name", ["alexnet", "mobilenet_v2", "vit_b_32"])
@pytest.mark.parametrize("batch", [1, 2, 7, 32])
def test_shipped_calls_are_those_of_the_model(name, batch):
    definition = select(["classification"], [name], batch)[name]
    shipped, extracted = shipped_calls(definition), extract_model_tuples(definition)
    assert shipped is not None
    assert shipped.definition == extracted.definition
    assert replace(shipped, extraction_s=None) == replace(extracted, extraction_s=None)


def test_all_models_for_classification_are_shipped():
    with zipfile.ZipFile(SHIPPED) as shipped:
        assert {*shipped.namelist()} == {VERSIONS, *official_inputs()["classification"]}
    for name in [*official_inputs()["classification"]][::10]:
        assert shipped_calls(select(["classification"], [name], 3)[name]) is not None


def test_other_inputs_precisions_and_families_are_not_shipped():
    [resnet] = select(["classification"], ["resnet18"], 8).values()
    assert shipped_calls(resnet) is not None
    for other in (
        replace(resnet, dtype="bfloat16"),
        replace(resnet, memory_format="channels_last"),
        replace(resnet, arguments={"num_classes": 10}),
        replace(resnet, inputs=(replace(resnet.inputs[0], shape=(8, 3, 64, 64)),)),
        *select(["segmentation"], ["fcn_resnet50"], 1).values(),
    ):
        assert shipped_calls(other) is None
