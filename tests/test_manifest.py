"""The files between extraction and measurement are plain, checked and reproducible."""

import contextlib
import dataclasses
import functools
import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opcost.errors import OpcostError
from opcost.tuples.manifest import (
    SCHEMA_VERSION,
    collect,
    read_manifest,
    read_record,
    read_refused,
    to_benchmark,
    write_manifest,
)
from opcost.tuples.model_tuples import read_extractions, read_model_tuples, write_model_tuples
from opcost.tuples.operator_tuple import TensorSpec, id_of


def names(manifest, excluded):
    chosen = [entry for entry in manifest.values() if entry["excluded"] == excluded]
    return sorted(entry["canonical_json"].split("aten.")[1].split(".")[0] for entry in chosen)


def test_a_models_tuples_survive_the_round_trip(tiny_tuples, tmp_path):
    for tuples in tiny_tuples:
        write_model_tuples(tmp_path / "m.pkl", tuples)
        assert read_model_tuples(tmp_path / "m.pkl") == tuples
    assert [path.name for path in tmp_path.iterdir()] == ["m.pkl"]


def test_call_counts_are_those_of_the_model(tiny_tuples):
    _, cnn = tiny_tuples
    counts = {
        record.operator_tuple.name: cnn.call_counts()[record.operator_tuple.tuple_id]
        for record in cnn.tuples
    }
    assert counts == {"conv2d": 2, "relu": 1, "flatten": 1, "linear": 1}


def test_a_parameter_is_one_in_every_call(tiny_tuples):
    [linear, *_] = (
        record
        for tuples in tiny_tuples
        for record in tuples.tuples
        if record.operator_tuple.name == "linear"
    )
    assert linear.parameters == ("weight", "bias")
    assert linear.holding(["bias", "input"]).parameters == ("bias",)


def test_the_manifest_holds_each_tuple_once_and_says_why_some_are_not_measured(tiny_tuples):
    manifest = collect([*tiny_tuples, *tiny_tuples], None)
    assert names(manifest, None) == ["conv2d", "linear", "linear", "linear", "relu", "relu"]
    assert names(manifest, "view") == ["flatten"]
    assert len(to_benchmark(manifest)) == 6


@pytest.mark.parametrize("name", ["conv2d", "aten.conv2d.default"])
def test_a_whitelist_filters_by_either_name(tiny_tuples, name):
    manifest = collect(tiny_tuples, [name])
    assert names(manifest, None) == ["conv2d"]
    assert len(names(manifest, "filtered")) == 5


def test_an_unknown_operator_is_explained_with_those_that_exist(tiny_tuples):
    with pytest.raises(OpcostError) as caught:
        collect(tiny_tuples, ["linaer", "conv2d"])
    assert "'linaer' is no operator. Did you mean 'linear'" in str(caught.value)
    assert "execute: conv2d, flatten, linear, relu" in str(caught.value)


def test_the_manifest_does_not_depend_on_the_order_of_models(tiny_tuples, tmp_path):
    write_manifest(tmp_path / "a.json", collect(tiny_tuples, None))
    write_manifest(tmp_path / "b.json", collect(reversed(tiny_tuples), None))
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert read_manifest(tmp_path / "a.json") == collect(tiny_tuples, None)
    assert read_refused(tmp_path / "a.json") == set()


def test_the_manifest_names_the_models_that_were_refused(tiny_tuples, tmp_path):
    write_manifest(tmp_path / "a.json", collect(tiny_tuples, None), ["second", "first"])
    assert read_refused(tmp_path / "a.json") == {"first", "second"}


def test_of_results_whose_size_depends_on_values_the_largest_stands_for_all(tiny_tuples):
    record = tiny_tuples[0].tuples[0]
    none, few = (
        dataclasses.replace(record, outputs=(TensorSpec(shape, "int64"),), value_dependent=flag)
        for shape, flag in (((0,), True), ((7,), False))
    )
    assert none.joined(few) == few.joined(none) == few
    assert none.joined(none).value_dependent


def test_a_job_reads_its_own_tuple_alone(tiny_tuples, tmp_path):
    path = tmp_path / "m.json"
    write_manifest(path, collect(tiny_tuples, None))
    for tuples in tiny_tuples:
        for tuple_id, record in tuples.by_id.items():
            assert read_record(path, tuple_id) == record
    with pytest.raises(OpcostError, match="has no tuple 0000"):
        read_record(path, "0000")


class Bomb:
    def __reduce__(self):
        return print, ("executed",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(Bomb()), "refused to load builtins.print"),
        (pickle.dumps({"schema_version": SCHEMA_VERSION})[:-5], "is not an opcost extraction"),
        (pickle.dumps({"schema_version": SCHEMA_VERSION}), "has no model"),
        (
            pickle.dumps({"schema_version": 0}),
            f"has schema version 0; this opcost reads {SCHEMA_VERSION}",
        ),
        (pickle.dumps([1, 2]), "has schema version null"),
        (b"PAR1", "is not an opcost extraction"),
        (b"", "is not an opcost extraction"),
        (b"\x80\x04\x8e" + (2**40).to_bytes(8, "little"), "is not an opcost extraction"),
        (b"\x80\x02Nr\xff\xff\xff\x7f.", "refused to remember 2147483647 values"),
        (b"\x80\x02" + b"]" * 10**5 + b"a" * (10**5 - 1) + b".", "has schema version null"),
    ],
    ids=[
        *("hostile", "truncated", "incomplete", "outdated", "foreign", "no pickle", "empty"),
        *("a terabyte", "a large memo", "deep"),
    ],
)
def test_a_pickle_that_is_not_ours_is_refused_with_the_remedy(tmp_path, capsys, content, message):
    path = tmp_path / "net.pkl"
    path.write_bytes(content)
    with pytest.raises(OpcostError) as caught:
        read_model_tuples(path)
    assert message in str(caught.value)
    assert f"delete {path} and run again" in str(caught.value)
    assert "executed" not in capsys.readouterr().out


def changed(document, keys, value):
    """A copy of plain data with another value at one place."""
    copy = json.loads(json.dumps(document))
    *above, last = keys
    functools.reduce(lambda inside, key: inside[key], above, copy)[last] = value
    return copy


@pytest.fixture(scope="module")
def extraction(tiny_tuples, tmp_path_factory):
    """A model's file and what it holds."""
    path = tmp_path_factory.mktemp("tuples") / "tiny_cnn.pkl"
    write_model_tuples(path, tiny_tuples[1])
    return path, pickle.loads(path.read_bytes())


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["calls", 0, 0], -1, "calls is "),
        (["calls", 0, 0], 99, "calls is "),
        (["tuples", 0, "flops"], -5, "tuple 0: flops is -5; allowed is a whole number"),
        (["tuples", 0, "bytes"], 2**63, "bytes is 9223372036854775808"),
        (["tuples", 0], [], "tuples is "),
        (["tuples", 0, "canonical_json"], "{}", "describes no operator tuple"),
        (["tuples", 0, "outputs", 0, "shape"], [-1], "no tensor is of shape [-1]"),
        (["tuples", 0, "outputs", 0, "layout"], [1], "has the layout [1]"),
        (["definition"], "[", "is not an opcost extraction"),
    ],
)
def test_a_model_that_cannot_be_is_refused_with_the_remedy(extraction, keys, value, message):
    path, document = extraction
    path.write_bytes(pickle.dumps(changed(document, keys, value)))
    with pytest.raises(OpcostError) as caught:
        read_model_tuples(path)
    assert message in str(caught.value)
    assert f"delete {path} and run again" in str(caught.value)


def test_the_file_of_another_model_is_refused_where_a_study_reads_it(tiny_tuples, tmp_path):
    path = tmp_path / "tiny_cnn-0.pkl"
    write_model_tuples(path, tiny_tuples[1])
    assert read_extractions([path]) == [tiny_tuples[1]]
    write_model_tuples(path, tiny_tuples[0])
    with pytest.raises(OpcostError, match="holds the tuples of another model, 'tiny_mlp': delete"):
        read_extractions([path])


def test_a_missing_file_comes_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(
        OpcostError, match=r"is missing: snakemake --cores 1 .*/gone-0\.pkl extracts"
    ):
        read_extractions([tmp_path / "gone-0.pkl"])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data(), value=VALUES)
def test_any_value_in_an_extraction_is_allowed_or_an_error_of_ours(extraction, data, value):
    path, document = extraction
    keys = [data.draw(st.sampled_from(sorted(document)))]
    if keys == ["tuples"]:
        keys += [0, data.draw(st.sampled_from(sorted(document["tuples"][0])))]
    path.write_bytes(pickle.dumps(changed(document, keys, value)))
    with contextlib.suppress(OpcostError):
        assert read_model_tuples(path).call_counts()


@given(data=st.data(), value=VALUES)
def test_any_value_in_a_manifest_is_allowed_or_an_error_of_ours(extraction, data, value):
    path, document = extraction[0].with_name("m.json"), extraction[1]["tuples"][0]
    entry = document | {"excluded": None}
    tuple_id = id_of(document["canonical_json"])
    key = data.draw(st.sampled_from(sorted(entry)))
    write_manifest(path, {tuple_id: entry | {key: value}})
    with contextlib.suppress(OpcostError):
        assert read_manifest(path)[tuple_id][key] == value
    with contextlib.suppress(OpcostError):
        assert read_record(path, tuple_id).operator_tuple.tuple_id == tuple_id


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("flops", -1, "flops is -1; allowed is a whole number of at least 0"),
        ("flops", math.nan, "NaN is not a finite number"),
        ("excluded", "hidden", "excluded is 'hidden'; allowed is null or 'view' or 'filtered'"),
        ("canonical_json", "{}", "describes another tuple ('{}')"),
    ],
)
def test_a_tuple_of_the_manifest_that_cannot_be_is_refused(
    tiny_tuples, tmp_path, key, value, message
):
    manifest, path = collect(tiny_tuples, None), tmp_path / "m.json"
    tuple_id = min(manifest)
    manifest[tuple_id][key] = value
    write_manifest(path, manifest)
    for read in (read_manifest, lambda path: read_record(path, tuple_id)):
        with pytest.raises(OpcostError, match=f"delete {path} and run again") as caught:
            read(path)
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is expected|is not valid JSON"),
        ("{}", "has schema version null|is not valid JSON"),
        (f'{{"schema_version": {SCHEMA_VERSION}}}', "has no refused|is not valid JSON"),
    ],
)
def test_a_manifest_that_is_not_ours_is_refused(tmp_path, content, message):
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(OpcostError, match=message):
        read_manifest(tmp_path / "m.json")
    with pytest.raises(OpcostError, match=f"delete {tmp_path / 'm.json'} and run again"):
        read_record(tmp_path / "m.json", "0000")
