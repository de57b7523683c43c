"""Write all measurements into one database, after checking each row.

The database holds every measurement, of this study and others; `selection` selects a study's rows.
"""

import itertools
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from opcost.databases.earlier import EarlierRows, identity_of, stating
from opcost.databases.measured import Damages, Measured
from opcost.databases.rounds import JOINED, Scatters, joined
from opcost.databases.target_columns import columns_of_targets, with_methods, with_results
from opcost.errors import OpcostError
from opcost.results_folder import key_of, series_of, target_of
from opcost.rows import records, schemas

Methods = Callable[[Measured, Damages, Path], Mapping[str, Mapping[str, Any]]]
"""Target -> its columns of the method's own error, from a database without them."""


def write_database(
    measured: Measured,
    output: Path,
    asked: Collection[Path] | None = None,
    methods: Methods | None = None,
) -> list[str]:
    """Write the rows of all measured operators into one file, in the order of targets and tuples.

    Each row joins the executions of a tuple (`rounds`). Memory is bounded. If `output` exists, rows
    of unchanged files are copied from it. A row's target is the name of its files' folder, which
    may have been renamed. Each row gets the columns of its target (`target_columns`); those of the
    method's own error are null without `methods`.

    Raises OpcostError with a remedy for a damaged file, or one that holds another tuple than its
    path names, among `asked` (default: all files). Other such files are skipped, and the returned
    messages name them; their rows in `output`, if any, are kept.
    """
    earlier = EarlierRows(output, measured.operators)
    damages = Damages(asked, earlier.numbers)
    scatters = Scatters()
    files: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        # The scatter of a target is known once all rows have been read.
        joined_rows = Path(folder) / "joined.parquet"
        rows = _noted(_rows(measured.operators, earlier, damages, files), scatters)
        records.write_batches(joined_rows, JOINED, rows)
        overheads = columns_of_targets(measured, damages, scatters)
        # The method's own error follows from the combined rows of a target.
        combined_rows = Path(folder) / "combined.parquet"
        stored = records.stream(joined_rows, JOINED)
        batches = (with_results(batch, overheads, scatters) for batch in stored)
        records.write_batches(combined_rows, schemas.DATABASE, batches)
        known = methods(measured, damages, combined_rows) if methods else {}
        damages.left_out()  # before the database is replaced
        stored = records.stream(combined_rows, schemas.DATABASE)
        batches = (with_methods(batch, known) for batch in stored)
        records.write_batches(output, schemas.DATABASE, batches, lambda: stating(files))
    return damages.left_out()


def _rows(
    subjects: Sequence[Sequence[Path]], earlier: EarlierRows, damages: Damages, files: list[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of these subjects; appends the identities of their files to `files`."""
    for is_same, group in itertools.groupby(subjects, lambda each: key_of(each[0]) in earlier.same):
        if is_same:
            kept = list(group)
            yield from earlier.take([key_of(paths[0]) for paths in kept], JOINED)
            files.extend(map(identity_of, kept))
            continue
        for paths in group:
            identities = identity_of(paths)  # before reading, so that concurrent writes are noticed
            readable = {}
            for path in paths:
                with damages.tolerated(path):
                    readable[path] = _checked(path, damages.remedy(path))
            found = damages.once(readable)
            if found:
                row = joined(list(found.values()), [series_of(path).round for path in found])
                yield pa.RecordBatch.from_pylist([row], schema=JOINED)
                files.append(identities if len(found) == len(paths) else "")
            elif key_of(paths[0]) in earlier.numbers:
                yield from earlier.take([key_of(paths[0])], JOINED)
                files.append("")


def _noted(rows: Iterator[pa.RecordBatch], scatters: Scatters) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        scatters.note(batch)
        yield batch


def _checked(path: Path, remedy: str) -> dict[str, Any]:
    """The row of a file, after checking that it is of the tuple that its path names."""
    rows = records.read(path, schemas.OPERATOR, remedy=remedy).to_pylist()
    if len(rows) != 1:
        count = f"{len(rows)} rows" if rows else "no row"
        raise OpcostError(f"{path} holds {count} where one is expected: {remedy}")
    [row] = rows
    if row["canonical_json"] is None:  # its id is checked where it is read
        raise OpcostError(
            f"{path} has a row of tuple {row['tuple_id']} that describes another (None): {remedy}"
        )
    if row["tuple_id"] != path.stem:
        raise OpcostError(f"{path} holds the row of another tuple, {row['tuple_id']}: {remedy}")
    return {**row, "target": target_of(path)}
