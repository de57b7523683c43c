"""Write all measurements into one database, after checking each row.

The database holds every measurement, of this study and others; `selection` selects a study's rows.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from opcost.databases.earlier import EarlierRows, stating
from opcost.databases.measured import Damages, Measured
from opcost.databases.target_columns import columns_of_targets, with_columns
from opcost.errors import OpcostError
from opcost.fingerprint import identity
from opcost.results_folder import target_of
from opcost.rows import records, schemas


def write_database(
    measured: Measured, output: Path, asked: Collection[Path] | None = None
) -> list[str]:
    """Write the rows of all measurements into one file, in the order of their paths.

    Memory is bounded. If `output` exists, rows of unchanged files are copied from it. A row's
    target is the name of its file's folder, which may have been renamed. Each row gets the columns
    of its target (`target_columns`).

    Raises OpcostError with a remedy for a damaged file, or one that holds another tuple than its
    path names, among `asked` (default: all files). Other such files are skipped, and the returned
    messages name them; their rows in `output`, if any, are kept.
    """
    earlier = EarlierRows(output, measured.operators)
    damages = Damages(asked, earlier.numbers)
    known = columns_of_targets(measured, damages)
    files: list[str] = []
    rows = _rows(measured.operators, earlier, damages, files)
    batches = (with_columns(batch, known) for batch in rows)
    records.write_batches(output, schemas.DATABASE, batches, lambda: stating(files))
    return damages.left_out()


def _rows(
    paths: Sequence[Path], earlier: EarlierRows, damages: Damages, files: list[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of these paths; appends the identities of their files to `files`."""
    for is_same, group in itertools.groupby(paths, key=earlier.same.__contains__):
        if is_same:
            same = list(group)
            yield from earlier.take(same)
            files.extend(map(identity, same))
            continue
        for path in group:
            file = identity(path)  # before reading, so that a concurrent write is detected
            with damages.tolerated(path):
                row = _checked(path, damages.remedy(path))
            if path not in damages.found:
                yield row
                files.append(file)
            elif path in earlier.numbers:
                yield from earlier.take([path])
                files.append("")
    damages.left_out()  # before the database is replaced


def _checked(path: Path, remedy: str) -> pa.RecordBatch:
    """The row of a file, after checking that it is of the tuple that its path names."""
    table = records.read(path, schemas.OPERATOR, remedy=remedy)
    if len(table) != 1:
        count = f"{len(table)} rows" if len(table) else "no row"
        raise OpcostError(f"{path} holds {count} where one is expected: {remedy}")
    [batch] = table.to_batches()
    tuple_id, canonical_json = (batch[name][0].as_py() for name in ("tuple_id", "canonical_json"))
    if canonical_json is None:  # its id is checked where it is read
        raise OpcostError(
            f"{path} has a row of tuple {tuple_id} that describes another (None): {remedy}"
        )
    if tuple_id != path.stem:
        raise OpcostError(f"{path} holds the row of another tuple, {tuple_id}: {remedy}")
    index = batch.schema.get_field_index("target")
    return batch.set_column(index, batch.schema.field(index), pa.array([target_of(path)]))
