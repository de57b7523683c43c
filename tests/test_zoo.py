"""All of torchvision can be chosen; what cannot be extracted says why, and stops nothing."""

import pytest
from opcost.costs.summary import first_screen
from opcost.errors import OpcostError
from opcost.measuring.benchmark import measure
from opcost.measuring.subjects import ModelSubject, OperatorSubject
from opcost.models.construction import build
from opcost.models.inputs import example_inputs
from opcost.models.zoo import official_inputs
from opcost.report.picture import draw
from opcost.rows import records, schemas
from opcost.study import load_study
from opcost.tuples.extraction import extract_model_tuples
from opcost.tuples.manifest import collect, to_benchmark
from opcost.tuples.model_table import as_text, rows_of
from opcost.tuples.model_tuples import read_model_tuples, refusals, write_model_tuples

from tests.stations import station_of
from tests.torchvision_models import installed

TARGETS = {"local": {"device": "cpu"}}


def study(**config):
    return load_study({"targets": TARGETS, **config})


def chosen(**selection):
    return study(torchvision=selection).models


def test_the_inputs_are_those_of_the_installed_torchvision():
    remedy = "PYTHONPATH=scripts python -m tests.torchvision_models writes them anew"
    assert official_inputs() == installed(), remedy


def test_the_whole_zoo_has_every_model_of_torchvision():
    import torchvision

    assert sorted(chosen()) == sorted(torchvision.models.list_models())


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        ({"names": ["resnet18", "vit_b_*"]}, {"resnet18", "vit_b_16", "vit_b_32"}),
        ({"names": ["*resnet18"]}, {"resnet18", "quantized_resnet18"}),
        (
            {"families": ["classification"], "names": ["*resnet18"]},
            {"resnet18"},
        ),
        ({"families": ["optical_flow"]}, {"raft_small", "raft_large"}),
    ],
)
def test_models_are_chosen_by_family_and_pattern(selection, names):
    assert set(chosen(**selection)) == names


@pytest.mark.parametrize(
    ("name", "shapes", "in_list"),
    [
        ("efficientnet_b1", [(2, 3, 240, 240)], False),
        ("r3d_18", [(2, 3, 16, 112, 112)], False),
        ("raft_small", [(2, 3, 512, 512)] * 2, False),
        ("ssd300_vgg16", [(3, 300, 300)] * 2, True),
    ],
)
def test_inputs_are_the_official_ones_in_a_batch(name, shapes, in_list):
    definition = chosen(names=[name], batch_size=2)[name]
    assert [spec.shape for spec in definition.inputs] == shapes
    arguments = example_inputs(definition).args
    assert [tensor.shape for tensor in (arguments[0] if in_list else arguments)] == shapes


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"torchvision": {"names": ["resnt18"]}}, "'resnt18' matches no model of the families"),
        ({"torchvision": {"names": ["resnt18"]}}, "Did you mean 'resnet18'"),
        ({"torchvision": {"families": ["video"], "names": ["vgg*"]}}, "Allowed: mc3_18, mvit_v1_b"),
        ({"torchvision": {"families": ["vidoe"]}}, "'vidoe' is not one of ['classification', "),
    ],
)
def test_a_wrong_choice_is_explained(config, message):
    with pytest.raises(OpcostError) as caught:
        study(**config)
    assert message in str(caught.value)


def test_a_config_and_a_chosen_model_of_one_name_are_refused(tmp_path):
    (tmp_path / "alexnet.yaml").write_text("{model: alexnet, inputs: [{shape: [1, 3, 64, 64]}]}")
    config = {"models": ["alexnet"], "model_directory": str(tmp_path)}
    with pytest.raises(OpcostError, match="alexnet: both a config in"):
        study(**config, torchvision={"names": ["alex*"]})
    assert set(study(**config, torchvision={"names": ["vgg11"]}).models) == {"alexnet", "vgg11"}


def test_the_studys_seed_is_that_of_weights_and_inputs():
    models = study(torchvision={"names": ["squeezenet1_1"]}, measurement={"seed": 3}).models
    definition = models["squeezenet1_1"]
    assert definition.seed == 3
    first, again = (next(build(definition).parameters()) for _ in range(2))
    assert first.equal(again)
    assert example_inputs(definition).args[0].equal(example_inputs(definition).args[0])


@pytest.fixture(scope="module")
def detection():
    """A detection model: its boxes, and so its sizes, depend on values."""
    [definition] = chosen(names=["fasterrcnn_mobilenet_v3_large_320_fpn"]).values()
    return extract_model_tuples(definition)


@pytest.fixture(scope="module")
def refused():
    [definition] = chosen(names=["quantized_resnet18"]).values()
    return extract_model_tuples(definition)


def test_a_model_whose_sizes_depend_on_values_is_extracted_by_running_it(detection):
    names = {record.operator_tuple.name for record in detection.tuples}
    assert {"conv2d", "torchvision.nms", "torchvision.roi_align"} <= names
    assert detection.parameters == 19_386_354  # as published, with frozen batch norms
    assert "batch_norm" not in names


def test_what_another_seed_changes_is_flagged_and_nothing_else(detection):
    flagged = {
        record.operator_tuple.name: record for record in detection.tuples if record.value_dependent
    }
    # So many boxes survive with this seed; the backbone has no choice.
    assert "torchvision.nms" in flagged
    assert "conv2d" not in flagged
    manifest = collect([detection], None)
    dependent = {key for key, entry in manifest.items() if entry["value_dependent"]}
    assert dependent == {record.operator_tuple.tuple_id for record in flagged.values()}


def test_a_model_that_takes_a_list_is_measured(cpu, watch, conditions):
    [definition] = chosen(names=["ssdlite320_mobilenet_v3_large"]).values()
    extracted = extract_model_tuples(definition)
    subject = ModelSubject(definition, None, extracted)
    row = measure(subject, station_of(cpu, conditions, watch))
    assert (row["status"], row.get("error"), row["differing_calls"]) == ("ok", None, [])


def test_a_measured_tuple_that_depends_on_values_is_flagged(detection, cpu, watch, conditions):
    [nms] = [
        record for record in detection.tuples if record.operator_tuple.name == "torchvision.nms"
    ]
    row = measure(OperatorSubject(nms), station_of(cpu, conditions, watch))
    assert row["status"] == "ok"
    assert "value_dependent" in row["flags"]


def test_a_study_of_which_nothing_is_measured_has_a_figure_all_the_same(tmp_path):
    draw(tmp_path / "cost.svg", [], [])
    assert "nothing measured" in (tmp_path / "cost.svg").read_text()


def test_a_refusal_is_kept_with_its_reason(refused, tmp_path):
    assert "quantised models are not supported" in refused.refusal
    assert (refused.tuples, refused.calls, refused.parameters) == ((), (), None)
    write_model_tuples(tmp_path / "m.pkl", refused)
    assert read_model_tuples(tmp_path / "m.pkl") == refused
    assert to_benchmark(collect([refused], None)) == []
    text = first_screen([], [], refusals([refused]))
    assert text.startswith("Not extracted: quantized_resnet18: quantised models are not")


def test_the_table_says_what_models_are_made_of(detection, refused, tiny_tuples, tmp_path):
    rows = rows_of([detection, refused, *tiny_tuples])
    records.write_with_csv(tmp_path / "models.parquet", schemas.EXTRACTION, rows)
    by_name = {
        row["model"]: row
        for row in records.read(tmp_path / "models.parquet", schemas.EXTRACTION).to_pylist()
    }
    cnn = by_name["tiny_cnn"]
    assert (cnn["family"], cnn["inputs"]) == (None, "1x3x8x8")
    assert (cnn["calls"], cnn["view_calls"], cnn["tuples"], cnn["view_tuples"]) == (4, 1, 3, 1)
    assert (cnn["shared_tuples"], cnn["value_dependent_tuples"]) == (0, 0)
    assert (cnn["flops"], cnn["parameters"]) == (2 * (2 * 8 * 8 * 3 * 27 + 192 * 8), 84 + 1544)
    faster = by_name[detection.model]
    assert (faster["family"], faster["inputs"]) == ("detection", "[3x320x320]")
    assert faster["value_dependent_tuples"] > 0
    absent = by_name["quantized_resnet18"]
    assert (absent["extracted"], absent["calls"], absent["flops"]) == (False, None, None)
    assert "quantised" in absent["reason"]
    assert len((tmp_path / "models.csv").read_text().splitlines()) == 1 + 4
    text = as_text(rows, 10)
    assert text.startswith("3 of 4 models: ")
    assert "Not extracted: quantized_resnet18: quantised" in text


def test_tuples_of_two_models_are_shared(tiny_tuples):
    mlp, cnn = tiny_tuples
    shared = [row["shared_tuples"] for row in rows_of([mlp, mlp, cnn])]
    assert shared == [3, 3, 0]
