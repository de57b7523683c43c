"""The page of columns, from opcost's schemas."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from opcost.rows import columns, schemas

from docs.reference.generate.layout import Row, anchor, page, table

FILES = {
    "database": "`results/database.parquet`",
    "merged": "what `opcost merge` writes",
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
    "operator": "`results/{target}/{conditions}/operators/{tuple_id}.parquet`, `operators_2/`, ...",
    "model": "`results/{target}/{conditions}/models/{model}.parquet`, `models_2/`, ...",
}
"""Record -> its files, in the order of the page. A new record needs a line here."""

GROUPS = {
    "Results": columns.RESULT,
    "Settings": columns.SETTINGS,
    "Conditions": columns.CONDITIONS,
    "Provenance": columns.PROVENANCE,
    "Circumstances": columns.CIRCUMSTANCES,
    "Raw values": columns.RAW,
    "Call overhead": columns.OVERHEAD,
    "Runs": columns.RUNS,
}
"""Columns of the database, after those of an operator tuple; some records share them."""

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
The columns of every Parquet file that opcost writes: the database first, then what other
files have beside them. The suffix of a name is its unit: `time_s` is in seconds. ± marks a column
with a 95 % interval, whose limits are two more columns: for `time_s`, `time_ci_low_s` and
`time_ci_high_s`. Null means unknown or not applicable, never zero; where there is a reason, another
column has it. The [glossary](glossary.md) defines the terms.

The metadata of each file name its record (`opcost.record`) and its schema version
(`opcost.schema_version`), currently {schemas.SCHEMA_VERSION}. opcost refuses files of
other versions."""

DATABASE = "One row for each operator tuple and target."


def columns_page() -> str:
    """The columns of every record. Raises KeyError for a record that FILES lacks."""
    described = {
        str(schema.metadata[b"opcost.record"].decode()): schema
        for schema in vars(schemas).values()
        if isinstance(schema, pa.Schema)
    }
    if missing := described.keys() - FILES.keys():
        raise KeyError(f"add the files of the records {missing} to FILES of {__file__}")
    listed = {record: _rows_of(record, described[record]) for record in FILES}
    groups = {title: _rows(column[:3] for column in group) for title, group in GROUPS.items()}
    grouped = {row for rows in groups.values() for row in rows}
    first = [row for row in listed["database"] if row not in grouped]
    known = {"Operator tuple": first, **groups}
    where = [(f"[{record}](#{anchor(record)})", files) for record, files in FILES.items()]
    parts = [INTRODUCTION, table(("record", "where"), where), "## database", DATABASE]
    for title, rows in known.items():
        parts += [f"### {title}", _table(rows)]
    known = {"database": listed.pop("database"), **known}
    for record, rows in listed.items():
        parts += [f"## {record}", *_what_is_new(rows, known)]
        known[record] = rows
    return page("Columns", *parts)


def _rows_of(record: str, schema: pa.Schema) -> list[Row]:
    meanings = schemas.DESCRIPTIONS[record]
    return _rows((field.name, field.type, meanings[field.name]) for field in schema)


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


def _what_is_new(rows: Sequence[Row], known: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Links to the lists of columns above, and a table of the rest."""
    linked = set()
    rest = list(rows)
    for title, listed in sorted(known.items(), key=lambda item: len(item[1]), reverse=True):
        if set(listed) <= set(rest):
            linked.add(title)
            rest = [row for row in rest if row not in listed]
    if linked:
        links = ", ".join(f"[{title}](#{anchor(title)})" for title in known if title in linked)
        yield f"The columns of {links}, and:" if rest else f"The columns of {links}."
    if rest:
        yield _table(rest)


def _row(name: str, kind: pa.DataType, meaning: str, mark: str) -> Row:
    endings = (end for end in UNITS if name == end or (end[0] == "_" and name.endswith(end)))
    readable = re.sub(r"<(?:item|element): (\w+)>", r" of \1", str(kind))
    return f"`{name}`{mark}", readable, UNITS.get(next(endings, ""), ""), meaning


def _table(rows: Sequence[Row]) -> str:
    return table(("column", "type", "unit", "meaning"), rows)
