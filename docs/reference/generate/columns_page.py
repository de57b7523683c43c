"""The page of columns, from opcost's schemas."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from opcost.rows import columns, schemas, versions

from docs.reference.generate.layout import Row, anchor, page, table

FILES = {
    "operator": "`results/{target}/{conditions}/operators/{tuple_id}.parquet`, `operators_2/`, ...",
    "database": "`results/database.parquet`",
    "merged": "what `opcost merge` writes",
    "model": "`results/{target}/{conditions}/models/{model}.parquet`, `models_2/`, ...",
    "answers": "`results/answers.parquet`",
    "model_costs": "in memory; the quantities of `results/answers.parquet`",
    "comparison": "`results/comparison.parquet`, `.csv`",
    "shares": "`results/shares.parquet`, `.csv`",
    "modules": "`results/modules.parquet`, `.csv`",
    "in_context": "`results/in_context.parquet`, `.csv`",
    "launches": "`results/launches.parquet`, `.csv`",
    "requests": "`results/requests.parquet`, `.csv`",
    "sweeps": "`results/sweeps.parquet`, `.csv`",
    "extraction": "`results/models.parquet`, `.csv`",
    "explanation": "what `opcost explain --parquet` writes",
    "difference": "what `opcost diff --parquet` writes",
}
"""Record -> its files. A new record needs a line here."""

SHARED = {
    "Results": columns.RESULT,
    "Settings": columns.SETTINGS,
    "Conditions": columns.CONDITIONS,
    "Provenance": columns.PROVENANCE,
    "Circumstances": columns.CIRCUMSTANCES,
    "Raw values": columns.RAW,
    "Call overhead": columns.OVERHEAD,
}
"""Columns that several records share."""

UNITS = {
    "_per_s": "1/s",
    "_s": "s",
    "_j": "J",
    "_w": "W",
    "_mhz": "MHz",
    "_c": "°C",
    "_bytes": "bytes",
    "bytes": "bytes",
    "flops": "FLOPs",
}
"""Suffix of a column's name, or the whole name -> its unit."""

INTRODUCTION = f"""\
The columns of all Parquet files that opcost writes. The suffix of a name is its unit: `time_s` is
in seconds. Null means unknown or not applicable, never zero; a reason, where there is one, is in
another column. The limits of the 95 % interval of a column marked ± are in two more: of `time_s` ±,
in `time_ci_low_s` and `time_ci_high_s`. The [glossary](glossary.md) defines the terms.

The metadata of each file name its record (`opcost.record`) and its schema version
(`opcost.schema_version`), currently {versions.SCHEMA_VERSION}. Columns that a later version added
are null in rows of earlier ones; `schema_version` is that of a row. Files of a newer version are
refused: upgrade opcost to read them."""


def columns_page() -> str:
    """The columns of every record. Raises KeyError for a record that FILES lacks."""
    described = {
        str(schema.metadata[b"opcost.record"].decode()): schema
        for schema in vars(schemas).values()
        if isinstance(schema, pa.Schema)
    }
    where = [(f"[{record}](#{anchor(record)})", _file(record)) for record in described]
    parts = [INTRODUCTION, table(("record", "where"), where)]
    known = {title: _rows(column[:3] for column in shared) for title, shared in SHARED.items()}
    for title, rows in known.items():
        parts += [f"## {title}", _table(rows)]
    for record, schema in described.items():
        meanings = schemas.DESCRIPTIONS[record]
        rows = _rows((field.name, field.type, meanings[field.name]) for field in schema)
        parts += [f"## {record}", *_what_is_new(rows, known)]
        known[record] = rows
    return page("Columns", *parts)


def _rows(fields: Iterable[tuple[str, pa.DataType, str]]) -> list[Row]:
    """A row for each column; a quantity with an interval has one, marked ±."""
    found = list(fields)
    names = {name for name, *_ in found}
    limits = {"".join(name.partition("_ci_low")[::2]): name for name in names if "_ci_low" in name}
    return [
        _row(name, kind, meaning, " ±" if name in limits else "")
        for name, kind, meaning in found
        if "_ci_low" not in name and "_ci_high" not in name
    ]


def _file(record: str) -> str:
    if record not in FILES:
        raise KeyError(f"add the files of the record {record!r} to FILES of {__file__}")
    return FILES[record]


def _what_is_new(rows: Sequence[Row], known: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Links to the lists of columns above, longest first, and a table of the rest."""
    links = []
    rest = list(rows)
    for title, listed in sorted(known.items(), key=lambda item: len(item[1]), reverse=True):
        if set(listed) <= set(rest):
            links.append(f"[{title}](#{anchor(title)})")
            rest = [row for row in rest if row not in listed]
    if links:
        yield f"The columns of {', '.join(links)}, and:"
    yield _table(rest)


def _row(name: str, kind: pa.DataType, meaning: str, mark: str) -> Row:
    endings = (end for end in UNITS if name == end or (end[0] == "_" and name.endswith(end)))
    readable = re.sub(r"<(?:item|element): (\w+)>", r" of \1", str(kind))
    return f"`{name}`{mark}", readable, UNITS.get(next(endings, ""), ""), meaning


def _table(rows: Sequence[Row]) -> str:
    return table(("column", "type", "unit", "meaning"), rows)
