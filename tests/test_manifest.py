"""The files between extraction and measurement are plain, checked and reproducible."""

import dataclasses
import pickle

import pytest
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
from opcost.tuples.model_tuples import read_model_tuples, write_model_tuples
from opcost.tuples.operator_tuple import TensorSpec


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


def test_an_operator_that_no_model_executes_is_no_error(tiny_tuples):
    assert to_benchmark(collect(tiny_tuples, ["matmul"])) == []


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
        (pickle.dumps({"schema_version": SCHEMA_VERSION}), "is not an opcost extraction (KeyError"),
        (
            pickle.dumps({"schema_version": 0}),
            f"has schema version 0; this opcost reads {SCHEMA_VERSION}",
        ),
        (pickle.dumps([1, 2]), "has schema version None"),
        (b"PAR1", "is not an opcost extraction"),
        (b"", "is not an opcost extraction"),
    ],
    ids=["hostile", "truncated", "incomplete", "outdated", "foreign", "no pickle", "empty"],
)
def test_a_pickle_that_is_not_ours_is_refused_with_the_remedy(tmp_path, capsys, content, message):
    path = tmp_path / "net.pkl"
    path.write_bytes(content)
    with pytest.raises(OpcostError) as caught:
        read_model_tuples(path)
    assert message in str(caught.value)
    assert f"delete {path} and run again" in str(caught.value)
    assert "executed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"), [("{", "is not valid JSON"), ("[]", "has schema version None")]
)
def test_a_manifest_that_is_not_ours_is_refused(tmp_path, content, message):
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(OpcostError, match=message):
        read_manifest(tmp_path / "m.json")
    with pytest.raises(OpcostError, match=f"delete {tmp_path / 'm.json'} and run again"):
        read_record(tmp_path / "m.json", "0000")
