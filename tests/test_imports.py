"""Records of others become rows that hold what they say, and are never taken for measured ones."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from opcost.commands import main
from opcost.costs.estimate import OPERATOR_COLUMNS, ModelEstimate
from opcost.costs.terms import Term
from opcost.databases.database import read_database
from opcost.databases.merging import merge
from opcost.devices.kinds import protocol_version
from opcost.errors import OpcostError
from opcost.imports.importer import import_records, module_of
from opcost.imports.layouts import LAYOUTS, Undetermined
from opcost.rows import comparability, records, schemas
from opcost.tuples.calls import module_calls
from opcost.tuples.model_tuples import ModelTuples
from torch import empty, nn

FOLDER = Path(__file__).parent / "imports"
LOG = FOLDER / "operator_profiling.log"
LABELS = sorted(FOLDER.glob("neusight_*.csv"))
SOURCE = "where it was published"


@pytest.fixture
def imported(tmp_path):
    """The rows of imported files, by description."""

    def imported(*paths, **options):
        import_records(paths, tmp_path / "imported.parquet", SOURCE, **options)
        rows = read_database(tmp_path / "imported.parquet").to_pylist()
        return {row["description"]: row for row in rows}

    return imported


def in_a_model(module, *shapes):
    """The id of the tuple that opcost records when a model executes this module."""
    executed = module_calls(module.eval(), [empty(shape) for shape in shapes], "model")
    [call] = executed.calls
    return call.operator_tuple.tuple_id


def test_a_line_of_a_log_becomes_the_tuple_that_a_model_executes(imported):
    rows = imported(LOG)
    row = rows["conv2d(2x3x56x56, 8x3x7x7, padding=[3,3], stride=[2,2])"]
    convolution = nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False)
    assert row["tuple_id"] == in_a_model(convolution, (2, 3, 56, 56))
    assert (row["time_s"], row["energy_j"], row["power_w"]) == (0.0005, 0.06, 120.0)
    assert row["flops"] == 2 * (2 * 8 * 28 * 28) * (3 * 7 * 7)
    assert row["parameters"] == ["weight"]


def test_an_inplace_operator_is_told_from_the_other(imported):
    assert "relu_(2x8x28x28)" in imported(LOG)


@pytest.mark.parametrize(
    ("description", "time_s", "module", "shapes"),
    [
        (
            "conv2d(38x893x5x5, 326x893x3x3, padding=[1,1])",
            0.9669973452885946e-3,
            nn.Conv2d(893, 326, 3, padding=1, bias=False),
            [(38, 893, 5, 5)],
        ),
        (
            "linear(1x58x13, 141x13, 141)",
            0.052213333547115326e-3,
            nn.Linear(13, 141),
            [(1, 58, 13)],
        ),
        (
            "layer_norm(32768x1600, 1600, 1600, normalized_shape=[1600])",
            0.8186048150062561e-3,
            nn.LayerNorm(1600),
            [(32768, 1600)],
        ),
    ],
)
def test_a_label_becomes_the_tuple_that_a_model_executes(
    imported, description, time_s, module, shapes
):
    row = imported(*LABELS)[description]
    assert row["tuple_id"] == in_a_model(module, *shapes)
    assert row["time_s"] == pytest.approx(time_s, rel=1e-15)


def test_a_label_says_its_device_and_versions(imported):
    row = imported(*LABELS)["bmm(192x96x196, 192x196x196)"]
    said = ("target", "device_name", "torch_version", "cuda_version", "cudnn_version")
    expected = ("neusight_NVIDIA_L4", "NVIDIA L4", "2.1.0", "12.1", "8902")
    assert tuple(row[name] for name in said) == expected
    assert row["energy_reason"] == "not published: these labels are times"


def test_what_a_record_does_not_say_is_null(imported):
    for row in imported(LOG, *LABELS).values():
        known = {name for name, value in row.items() if value is not None}
        assert known <= {
            *("tuple_id", "operator", "canonical_json", "description", "flops", "bytes"),
            *("parameters", "target", "status", "time_s", "energy_j", "power_w", "energy_reason"),
            *("flags", "conditions_json", "device_name"),
            *("torch_version", "cuda_version", "cudnn_version"),
        }


def test_a_row_says_that_it_is_imported_and_from_where(imported):
    rows = imported(LOG, target="a30", device_name="NVIDIA A30")
    for row in rows.values():
        assert row["flags"] == ["imported"]
        origin = {"layout": "operator-profiling", "source": SOURCE}
        assert json.loads(row["conditions_json"]) == {"imported": origin}
        assert (row["target"], row["device_name"]) == ("a30", "NVIDIA A30")
    linear = rows["linear(2x8, 10x8, 10)"]
    assert (linear["energy_j"], linear["power_w"]) == (None, None)
    assert linear["energy_reason"] == "not published"


REASONS = {
    "BatchNorm2d executes 2 operators, not one (add_, batch_norm)": 1,
    "its tuple has an earlier record on its target": 1,
    "StochasticDepth is not the text of a module of torch.nn": 1,
    "ResNet is not the text of a module of torch.nn": 1,
    "addu takes a random number, which is not recorded": 1,
}


def test_each_record_is_a_row_or_left_out_for_a_reason(tmp_path):
    done = import_records([LOG, *LABELS], tmp_path / "imported.parquet", SOURCE)
    assert done.rows.total() + done.skipped.total() == 9 + 7
    assert done.rows.total() == read_database(tmp_path / "imported.parquet").num_rows
    for beginning, count in REASONS.items():
        [reason] = [reason for reason in done.skipped if reason.startswith(beginning)]
        assert done.skipped[reason] == count
        assert f"{count} {reason} ({done.first_skipped[reason]})\n" in f"{done}\n"
    assert len(done.skipped) == len(REASONS)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("conv,1.0,X,1,3,8,3,5,1,", "conv lacks one of its sizes"),
        ("conv,,X,1,3,8,3,5,1,1", "its time is not a positive number"),
        ("conv,fast,X,1,3,8,3,5,1,1", "its time is not a positive number"),
        ("conv,1.0,X,1,3,8,-3,5,1,1", "it cannot run: "),
        ("gather,1.0,X,1,3,8,3,5,1,1", "gather is not an operator of these labels"),
    ],
)
def test_a_label_that_determines_no_tuple_is_left_out(tmp_path, line, reason):
    sizes = "B,Input_Channel,Output_Channel,Kernel_Szie,Input_Size,Stride,Padding"
    path = tmp_path / "labels.csv"
    path.write_text(f"OPName,Latency,Device,{sizes}\n{line}\n")
    done = import_records([path], tmp_path / "imported.parquet", SOURCE)
    [found] = done.skipped
    assert found.startswith(reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Hardswish()", "does not say whether it works in place"),
        ("Conv2d(3, 8, kernel_size=__import__('os').getpid())", "is not the text of a module"),
        ("functional()", "is not the text of a module"),
        ("Conv2d(3)", "is not the text of a module"),
    ],
)
def test_a_text_that_is_not_all_of_a_module_is_none(text, reason):
    with pytest.raises(Undetermined, match=reason):
        module_of(text)


sizes = st.integers(1, 4)


@given(
    channels=sizes,
    kernel=st.tuples(sizes, sizes),
    stride=st.tuples(sizes, sizes),
    padding=sizes,
    dilation=sizes,
    bias=st.booleans(),
)
def test_a_module_is_what_its_text_says(channels, bias, **options):
    options["kernel_size"] = options.pop("kernel")
    module = nn.Conv2d(channels, 2 * channels, groups=channels, bias=bias, **options)
    assert repr(module_of(repr(module))) == repr(module)


def estimate(*rows):
    """The sum over two tuples of a model that were measured, or imported."""
    chosen = [{name: row.get(name) for name in OPERATOR_COLUMNS} for row in rows]
    model = ModelTuples("model", (), (), 0, "2.15.0")
    return ModelEstimate(model, [Term(None, 1, row, False) for row in chosen])


def test_imported_rows_are_never_added_up_with_measured_ones(imported):
    first, second, *_ = imported(LOG, device_name="X").values()
    measured = {
        **second,
        "protocol_version": protocol_version("cpu"),
        "conditions_json": '{"target": {"any_of_kind": true}}',
    }
    assert estimate(first, second).time.value == first["time_s"] + second["time_s"]
    assert estimate(first, second).time.low is None
    mixed = estimate(first, measured)
    assert mixed.time is None
    assert "measured under different conditions" in mixed.time_reason


def test_records_of_two_sources_are_not_added_up_either(tmp_path):
    rows = []
    for source in ("one", "another"):
        import_records([LOG], tmp_path / "imported.parquet", source, target="x")
        rows.append(read_database(tmp_path / "imported.parquet").to_pylist()[0])
    assert "different conditions: imported." in comparability.conflict(rows)


def test_a_merge_keeps_them_apart_and_knows_copies(tmp_path):
    for name in ("first", "second"):
        import_records([LOG], tmp_path / f"{name}.parquet", SOURCE, target="local")
    row = read_database(tmp_path / "first.parquet").to_pylist()[0]
    measured = row | {"protocol_version": 4, "conditions_json": "{}", "device_uuid_hash": "a" * 16}
    records.write(tmp_path / "measured.parquet", schemas.DATABASE, [measured])
    paths = [tmp_path / f"{name}.parquet" for name in ("first", "second", "measured")]
    done = merge(paths, tmp_path / "merged.parquet")
    merged = read_database(tmp_path / "merged.parquet").to_pylist()
    assert len(merged) == 6
    imported = {each["conditions_id"] for each in merged if "imported" in each["conditions_json"]}
    assert len(imported) == 1
    assert imported.isdisjoint(
        {each["conditions_id"] for each in merged if each["device_uuid_hash"]}
    )
    assert None not in imported
    assert "local, unknown device, imported\n" in str(done)


def run(*arguments):
    return CliRunner().invoke(main, ["import", *map(str, arguments)])


def test_one_command_imports_and_exits_with_3_if_something_is_left_out(tmp_path):
    options = ["--source", SOURCE, "--output", tmp_path / "imported.parquet"]
    completed = run(FOLDER / "neusight_conv.csv", *options)
    assert (completed.exit_code, completed.stderr) == (0, "")
    completed = run(*LABELS, *options)
    assert completed.exit_code == 3
    assert "7 records\n" in completed.stdout
    assert "addu takes a random number, which is not recorded (neusight_elem" in completed.stdout


def test_a_file_of_another_layout_is_named_with_those_that_are_known(tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("operator,time\n")
    for path, message in (
        (other, "operator-profiling, neusight"),
        (tmp_path / "no", "No such file"),
    ):
        with pytest.raises(OpcostError, match=message) as caught:
            import_records([LOG, path], tmp_path / "imported.parquet", SOURCE)
        assert str(path) in str(caught.value)
        assert not (tmp_path / "imported.parquet").exists()


def test_the_document_names_every_layout():
    text = (Path(__file__).parent.parent / "docs" / "how_to" / "databases.md").read_text()
    for layout in LAYOUTS:
        assert f"`{layout}`" in text
