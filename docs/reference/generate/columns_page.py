"""The page of columns, from opcost's schemas."""

import re
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from opcost.rows import columns, schemas, versions

from docs.reference.generate.layout import Row, anchor, page, table

FILES = {
    "operator": "`results/{target}/operators/{tuple_id}.parquet`, and `again/` beside it",
    "database": "`results/database.parquet`",
    "merged": "what `opcost merge` writes",
    "model": "`results/{target}/models/{model}.parquet`",
    "comparison": "`results/comparison.parquet`, `.csv`",
    "shares": "`results/shares.parquet`, `.csv`",
    "modules": "`results/modules.parquet`, `.csv`",
    "extraction": "`results/models.parquet`, `.csv`",
    "explanation": "what `opcost explain --parquet` writes",
    "difference": "what `opcost diff --parquet` writes",
}
"""Record -> where it is found. A new record needs a line here."""

SHARED = {
    "Results": columns.RESULT,
    "Settings": columns.SETTINGS,
    "Conditions": columns.CONDITIONS,
    "Provenance": columns.PROVENANCE,
    "Circumstances": columns.CIRCUMSTANCES,
    "Raw values": columns.RAW,
    "Overhead of calls": columns.OVERHEAD,
}
"""Columns that several records have."""

UNITS = {
    "_s": "s",
    "_j": "J",
    "_w": "W",
    "_mhz": "MHz",
    "_c": "°C",
    "_bytes": "bytes",
    "bytes": "bytes",
    "flops": "FLOPs",
}
"""How a column's name ends, or all of it -> its unit."""

INTRODUCTION = f"""\
Everything that opcost writes as Parquet, column by column. The end of a name is its unit: `time_s`
is in seconds. Null means that something is not known or does not apply, never zero; where there is
a reason to tell, another column tells it.

Each file states in its metadata which record it holds (`opcost.record`) and in which version
(`opcost.schema_version`), now {schemas.SCHEMA_VERSION}. Files of earlier versions are read like
today's: what they lack is null. *since* is the version from which on a record or a column exists;
`schema_version` is the one that a row was written with. A file of a later version is refused:
upgrade opcost to read it."""


def columns_page() -> str:
    """Every record, column by column. Raises KeyError for one that FILES does not place."""
    described = {
        str(schema.metadata[b"opcost.record"].decode()): schema
        for schema in vars(schemas).values()
        if isinstance(schema, pa.Schema)
    }
    where = [
        (f"[{record}](#{anchor(record)})", _file(record), str(versions.FIRST.get(record, 1)))
        for record in described
    ]
    parts = [INTRODUCTION, table(("record", "where", "since"), where)]
    known = {
        title: [_row("database", *column[:3]) for column in shared]
        for title, shared in SHARED.items()
    }
    for title, rows in known.items():
        parts += [f"## {title}", _table(rows)]
    for record, schema in described.items():
        meanings = schemas.DESCRIPTIONS[record]
        rows = [_row(record, field.name, field.type, meanings[field.name]) for field in schema]
        parts += [f"## {record}", *_what_is_new(rows, known)]
        known[record] = rows
    changes = [(str(version), changed) for version, changed in schemas.VERSIONS.items()]
    parts += ["## Versions of the schema", table(("version", "what changed"), changes)]
    return page("Columns", *parts)


def _file(record: str) -> str:
    if record not in FILES:
        raise KeyError(f"say in FILES of {__file__} where the record {record!r} is found")
    return FILES[record]


def _what_is_new(rows: Sequence[Row], known: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Links to columns that stand above, the longest lists first, and a table of the others."""
    links = []
    rest = list(rows)
    for title, listed in sorted(known.items(), key=lambda item: len(item[1]), reverse=True):
        if set(listed) <= set(rest):
            links.append(f"[{title}](#{anchor(title)})")
            rest = [row for row in rest if row not in listed]
    if links:
        yield f"The columns of {', '.join(links)}, and:"
    yield _table(rest)


def _row(record: str, name: str, kind: pa.DataType, meaning: str) -> Row:
    endings = (end for end in UNITS if name == end or (end[0] == "_" and name.endswith(end)))
    since = str(versions.since(record, name))
    readable = re.sub(r"<(?:item|element): (\w+)>", r" of \1", str(kind))
    return f"`{name}`", readable, UNITS.get(next(endings, ""), ""), since, meaning


def _table(rows: Sequence[Row]) -> str:
    return table(("column", "type", "unit", "since", "meaning"), rows)
