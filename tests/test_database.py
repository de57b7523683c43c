"""Every measurement of a study is in the database, and none that is not what it says."""

import contextlib
import json
import tempfile
import time
from pathlib import Path
from unittest import mock

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opcost.databases.database import write_database
from opcost.errors import OpcostError
from opcost.rows import records, schemas
from opcost.tuples.operator_tuple import id_of


def row(number=0, target="local"):
    canonical_json = f'{{"arguments":{{}},"operator":"aten.number_{number}.default"}}'
    return {
        "tuple_id": id_of(canonical_json),
        "canonical_json": canonical_json,
        "target": target,
        "status": "ok",
        "time_s": 1e-3,
        "flags": [],
        "batch_time_s": [1e-3 * number] * number,
    }


@pytest.fixture
def measured(tmp_path):
    """A function that writes rows into one file, and returns its path."""

    def measured(name, *rows):
        path = tmp_path / f"{name}.parquet"
        records.write(path, schemas.OPERATOR, rows)
        return path

    return measured


def test_files_of_any_number_of_rows_are_joined_in_their_order(measured, tmp_path):
    paths = [
        measured("b", row(2), row(1)),
        measured("a", row(3)),
        measured("c", row(1, target="other")),
    ]
    write_database(paths, tmp_path / "database.parquet")
    database = records.read(tmp_path / "database.parquet", schemas.DATABASE)
    rows = records.read_all(paths, schemas.OPERATOR)
    assert database.select(rows.column_names).to_pylist() == rows.to_pylist()
    assert [len(times) for times in database["batch_time_s"].to_pylist()] == [2, 1, 3, 1]


def test_a_large_database_is_written_piece_by_piece(measured, tmp_path):
    path = measured("many", *(row(number % 3, f"target{number}") for number in range(2000)))
    write_database([path], tmp_path / "database.parquet")
    assert pq.ParquetFile(tmp_path / "database.parquet").num_row_groups > 1
    assert records.read(tmp_path / "database.parquet", schemas.DATABASE).num_rows == 2000


def test_a_study_without_measurements_has_a_database_without_rows(tmp_path):
    write_database([], tmp_path / "database.parquet")
    assert len(records.read(tmp_path / "database.parquet", schemas.DATABASE)) == 0


def studied(folder, numbers, **changes):
    """The files of these tuples, as a study has them, in the order of their names."""
    paths = []
    for each in map(row, numbers):
        path = folder / "results" / "local" / "operators" / f"{each['tuple_id']}.parquet"
        if changes or not path.exists():
            records.write(path, schemas.OPERATOR, [each | changes])
        paths.append(path)
    return sorted(paths)


@contextlib.contextmanager
def settled():
    """Ten seconds pass while a database is written: clocks may differ by less."""
    with mock.patch("time.time_ns", return_value=time.time_ns() + 10 * 10**9):
        yield


@contextlib.contextmanager
def reading():
    """The paths of the files that are read."""
    paths, real = [], records.stream

    def stream(path, *arguments, **options):
        paths.append(path)
        return real(path, *arguments, **options)

    with mock.patch.object(records, "stream", stream):
        yield paths


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
@settings(max_examples=20, deadline=None)
def test_of_what_an_earlier_database_has_no_file_is_read(before, after):
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        output, fresh = here / "database.parquet", here / "fresh.parquet"
        paths = studied(here, before)
        with settled():
            write_database(paths, output)
        paths = studied(here, after)
        write_database(paths, fresh)
        with reading() as read:
            write_database(paths, output)
        assert set(read) - {output} == set(studied(here, after - before))
        assert records.read(output, schemas.DATABASE).equals(records.read(fresh, schemas.DATABASE))


def test_a_file_that_was_written_since_is_read(tmp_path):
    output = tmp_path / "database.parquet"
    paths = studied(tmp_path, range(5))
    with settled():
        write_database(paths, output)
    time.sleep(0.05)  # the file system's clock has steps
    [changed] = studied(tmp_path, [3], time_s=2.0)
    with reading() as read:
        write_database(paths, output)
    assert set(read) - {output} == {changed}
    assert records.read(output, schemas.DATABASE)["time_s"].to_pylist().count(2.0) == 1


def test_files_as_old_as_the_database_are_read(tmp_path):
    paths = studied(tmp_path, range(5))
    write_database(paths, tmp_path / "database.parquet")
    with reading() as read:
        write_database(paths, tmp_path / "database.parquet")
    assert set(read) >= set(paths)


def spreads(tmp_path, measured, *factors):
    """The spreads of the rows, where some were measured again, at another speed."""
    first = [row(number) | {"time_s": 1e-3} for number in range(10)]
    paths = [measured(f"{each['tuple_id']}", each) for each in first]
    (tmp_path / "again").mkdir()
    again = [
        measured(f"again/{each['tuple_id']}", each | {"time_s": factor and 1e-3 * factor})
        for each, factor in zip(first, factors, strict=False)
    ]
    write_database(paths, tmp_path / "database.parquet", again)
    return set(records.read(tmp_path / "database.parquet", schemas.DATABASE)["spread"].to_pylist())


def test_each_row_says_how_well_measurements_of_its_target_reproduce(measured, tmp_path):
    [spread] = spreads(tmp_path, measured, *[1.1, 0.9] * 5)
    assert spread == pytest.approx(0.1 / 0.6745 / 2**0.5, rel=0.01)


def test_what_calls_cost_on_a_target_is_over_the_processes_at_both_ends_of_a_study(
    measured, tmp_path
):
    paths = [measured("a", row(1)), measured("b", row(1, target="gpu"))]
    files = [
        tmp_path / path for path in ("local/device.json", "local/again.json", "gpu/device.json")
    ]
    for path, found in zip(files, [[[1e-6, 2e-6, 3e-6, False]] * 2] * 2 + [None], strict=True):
        path.parent.mkdir(exist_ok=True)
        device = "cpu" if found else "cuda:0"
        path.write_text(json.dumps({"device": device, "device_name": "Any", "overhead": found}))
    files[1].write_text(json.dumps({"overhead": [[4e-6, 2e-6, 3e-6, False]] * 2}))
    write_database(paths, tmp_path / "database.parquet", overheads=files)
    here, gpu = records.read(tmp_path / "database.parquet", schemas.DATABASE).to_pylist()
    assert here["call_overhead_s"] == pytest.approx(2.5e-6)
    assert here["call_overhead_ci_low_s"] < 1e-6
    assert here["displaced_call_overhead_ci_low_s"] == pytest.approx(2e-6)
    assert here["overhead_disturbed"] is False
    assert (gpu["call_overhead_s"], gpu["overhead_disturbed"]) == (None, None)


@pytest.mark.parametrize("factors", [(), [None] * 3 + [1.0] * 5], ids=["none", "failed"])
def test_what_was_not_measured_twice_says_nothing_of_the_spread(measured, tmp_path, factors):
    assert spreads(tmp_path, measured, *factors) == {None}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no row"),
        ([row(2) | {"tuple_id": "0" * 16}], "is damaged: tuple_id of 0000000000000000"),
        ([row(2) | {"canonical_json": None}], "that describes another"),
        ([row(1)], "first.parquet both hold tuple"),
    ],
    ids=["no row", "another id", "no description", "a tuple twice"],
)
def test_a_file_that_is_not_what_it_says_is_named(measured, tmp_path, rows, message):
    paths = [measured("first", row(1)), measured("second", *rows)]
    with pytest.raises(OpcostError) as caught:
        write_database(paths, tmp_path / "database.parquet")
    assert str(paths[1]) in str(caught.value)
    assert message in str(caught.value)
    assert "delete" in str(caught.value)
    assert not (tmp_path / "database.parquet").exists()
