"""Every measurement of a study is in the database, and none that is not what it says."""

import pyarrow.parquet as pq
import pytest
from opcost import records, schemas
from opcost.database import write_database
from opcost.errors import OpcostError
from opcost.operator_tuple import id_of


def row(number=0, target="local"):
    canonical_json = f'{{"arguments":{{}},"operator":"aten.number_{number}.default"}}'
    return {
        "tuple_id": id_of(canonical_json),
        "canonical_json": canonical_json,
        "target": target,
        "status": "ok",
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
    database = records.read(tmp_path / "database.parquet", schemas.OPERATOR)
    assert database.equals(records.read_all(paths, schemas.OPERATOR))
    assert [len(times) for times in database["batch_time_s"].to_pylist()] == [2, 1, 3, 1]


def test_a_large_database_is_written_piece_by_piece(measured, tmp_path):
    path = measured("many", *(row(number % 3, f"target{number}") for number in range(2000)))
    write_database([path], tmp_path / "database.parquet")
    assert pq.ParquetFile(tmp_path / "database.parquet").num_row_groups > 1
    assert records.read(tmp_path / "database.parquet", schemas.OPERATOR).num_rows == 2000


def test_a_study_without_measurements_has_a_database_without_rows(tmp_path):
    write_database([], tmp_path / "database.parquet")
    assert len(records.read(tmp_path / "database.parquet", schemas.OPERATOR)) == 0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no row"),
        ([row(2) | {"tuple_id": "0" * 16}], "of tuple 0000000000000000 that describes another"),
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
