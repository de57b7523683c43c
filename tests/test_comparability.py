"""Which rows may be added up, merged and compared follows from the roles of their columns."""

import itertools
import json

import pyarrow as pa
import pytest
from click.testing import CliRunner
from opcost.commands import main
from opcost.databases.merging import merge
from opcost.devices.kinds import KINDS as DEVICES
from opcost.rows import comparability, records, schemas
from opcost.rows.column import Role
from opcost.rows.columns import MEASUREMENT
from opcost.tuples.operator_tuple import OperatorTuple, TensorSpec

TUPLES = [
    OperatorTuple("aten.relu.default", (("self", TensorSpec((n,), "float32")),)) for n in (1, 2)
]
CONDITIONS = {"target": {"device": "cuda:0", "threads": 1, "tf32": False}, "protocol_version": 4}
ROW = {
    "target": "gpu",
    "status": "ok",
    "time_s": 1e-3,
    "time_ci_low_s": 0.99e-3,
    "time_ci_high_s": 1.01e-3,
    "converged": True,
    "flags": [],
    "protocol_version": 4,
    "conditions_json": json.dumps(CONDITIONS),
    "cache_state": "model",
    "launch_mode": "eager",
    "threads": 1,
    "tf32": False,
    "device_name": "Simulated",
    "device_uuid_hash": "a" * 16,
    "machine_id_hash": "c" * 16,
    "torch_version": "2.15.0",
    "cuda_version": "13.0",
    "driver_version": "580",
    "power_limit_w": 700.0,
    "cpu_count": 16,
    "last_level_cache_bytes": 2**25,
    "os": "Linux 6",
    "python_version": "3.12.1",
}
OTHER = {pa.string(): "other", pa.int64(): 7, pa.float64(): 400.0, pa.bool_(): True}
KINDS = {column.name: column.type for column in MEASUREMENT}


def test_a_difference_that_a_column_and_the_conditions_state_is_told_once():
    other = json.dumps({**CONDITIONS, "protocol_version": 3})
    rows = [ROW, ROW | {"conditions_json": other, "protocol_version": 3}]
    [found] = comparability.disagreements(rows, ["protocol_version", "conditions_json"])
    assert str(found) == "protocol_version 3 (1 row) and 4 (1 row)"


def changed(name):
    """A row that differs from ROW in one column alone."""
    if name in ("conditions_json", "threads"):
        target = {**CONDITIONS["target"], "threads": 2}
        text = json.dumps({**CONDITIONS, "target": target})
        return ROW | {"conditions_json": text, "threads": 2}
    return ROW | {name: OTHER[KINDS[name]]}


def database(path, *rows):
    columns = [
        {
            "tuple_id": operator_tuple.tuple_id,
            "canonical_json": operator_tuple.canonical_json,
            "operator": operator_tuple.operator,
            "description": str(operator_tuple),
        }
        for operator_tuple in TUPLES
    ]
    records.write(path, schemas.DATABASE, [columns[index] | row for index, row in rows])
    return path


@pytest.mark.parametrize("name", comparability.names_in(Role.SETTING, Role.CONDITION))
def test_rows_under_two_settings_or_conditions_are_not_added_up(name):
    known = ROW if ROW.get(name) is not None else ROW | {name: "before"}
    reason = comparability.conflict([_complete(known), _complete(changed(name))])
    shown = "threads" if name == "conditions_json" else name
    assert shown in reason
    assert "out of the folder of gpu" in reason


POINTS = [{}, {"power_limit_w": 300}, {"power_limit_w": 300, "sm_clock_mhz": 1500}]


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations(POINTS, 2)])
def test_what_is_measured_at_two_operating_points_stays_apart(first, second, tmp_path):
    """Also where the GPU does not tell its limit."""
    targets = [{**CONDITIONS["target"], **point} for point in (first, second)]
    rows = [
        _complete(ROW | {"power_limit_w": None, "conditions_json": json.dumps({"target": target})})
        for target in targets
    ]
    differing = (second.keys() - first.keys()).pop()
    assert f"target.{differing} " in comparability.conflict(rows)
    assert len({*map(comparability.conditions_id, rows)}) == 2
    paths = [database(tmp_path / f"{n}.parquet", (0, row)) for n, row in enumerate(rows)]
    merge(paths, tmp_path / "merged.parquet")
    assert len(records.read(tmp_path / "merged.parquet", schemas.MERGED)) == 2
    refused = _diff(*paths)
    assert refused.exit_code == 1
    assert f"target.{differing} is " in refused.stderr


@pytest.mark.parametrize("name", comparability.COLUMNS)
def test_what_is_not_known_is_no_difference(name):
    assert comparability.conflict([_complete(ROW), _complete(ROW | {name: None})]) is None


def _measured_for(seconds, **settings):
    measurement = {"cache_state": "model", "max_time_s": seconds, "min_batches": 6, **settings}
    return _complete(ROW | {"conditions_json": json.dumps({"measurement": measurement})})


def test_a_longer_measurement_of_the_same_is_added_up():
    rows = [_measured_for(1), _measured_for(3.0)]
    assert comparability.conflict(rows) is None
    assert comparability.conditions_id(rows[0]) == comparability.conditions_id(rows[1])
    other = _measured_for(1, cache_state="warm")
    assert "cache_state" in comparability.conflict([rows[0], other])
    assert comparability.conditions_id(other) != comparability.conditions_id(rows[0])


@pytest.mark.parametrize("name", ["os", "python_version"])
def test_provenance_is_added_up_and_told(name):
    rows = [_complete(ROW), _complete(changed(name))]
    assert comparability.conflict(rows) is None
    assert f"{name} {ROW[name]} (1 row) and other (1 row)" in comparability.provenance_differences(
        rows
    )


@pytest.mark.parametrize("role", [Role.CIRCUMSTANCE, Role.RAW])
def test_what_differs_from_row_to_row_keeps_none_apart(role):
    for name in comparability.names_in(role):
        if KINDS[name] in OTHER:
            rows = [_complete(ROW), _complete(changed(name))]
            assert comparability.conflict(rows) is None
            assert comparability.conditions_id(rows[0]) == comparability.conditions_id(rows[1])


@pytest.mark.parametrize("name", ["power_limit_w", "driver_version", "torch_version", "cpu_count"])
def test_a_diff_names_the_condition_that_changed(tmp_path, name):
    before = database(tmp_path / "a.parquet", *enumerate([ROW] * 2))
    after = database(tmp_path / "b.parquet", *enumerate([changed(name)] * 2))
    assert name in _diff(before, after).stdout


def test_a_diff_refuses_two_settings_unless_it_is_told_to(tmp_path):
    before = database(tmp_path / "a.parquet", *enumerate([ROW] * 2))
    after = database(tmp_path / "b.parquet", *enumerate([changed("conditions_json")] * 2))
    refused = _diff(before, after)
    assert refused.exit_code == 1
    assert "target.threads is 1 before, 2 after" in refused.stderr
    assert "threads" in _diff(before, after, "--anyway").stdout


def _diff(*arguments):
    return CliRunner().invoke(main, ["diff", *map(str, arguments)])


def _complete(row):
    return dict.fromkeys(KINDS) | row


@pytest.mark.parametrize(
    ("requested", "device", "kind"),
    [("cpu", "cpu", "cpu"), ("auto", "cpu", "cpu"), ("auto", "cuda:0", "cuda"), (None, None, None)],
)
def test_a_device_has_its_kind_also_if_auto_chose_it(requested, device, kind):
    target = {} if requested is None else {"target": {"device": requested}}
    row = ROW | {"conditions_json": json.dumps(target), "device": device}
    assert comparability.kind_of(row) is DEVICES.get(kind)
