"""croissant.json: the description for programs, in Croissant 1.0 (mlcommons.org/croissant/1.0)."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from opcost.publishing.about import ASSETS, About, Rows
from opcost.rows import schemas

_FORMATS = {".parquet": "application/x-parquet", ".json": "application/json"}
_TYPES = {"int64": "sc:Integer", "double": "sc:Float", "bool": "sc:Boolean", "string": "sc:Text"}


def croissant(about: About, folder: Path) -> dict[str, Any]:
    """The description of the databases and the sensor files in a folder, as JSON-LD."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in _FORMATS)
    names = [f"{each['given-names']} {each['family-names']}" for each in about.authors]
    return {
        "@context": json.loads((ASSETS / "croissant_context.json").read_text(encoding="utf-8")),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": about.title,
        "description": about.summary,
        "license": about.license_url,
        "creator": [{"@type": "sc:Person", "name": name} for name in names],
        "datePublished": about.date.isoformat(),
        "version": about.version,
        "keywords": about.keywords,
        "citeAs": about.citation,
        "distribution": [_file(path, str(path.relative_to(folder))) for path in files],
        "recordSet": [_record_set(each) for each in about.databases],
    }


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _file(path: Path, name: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        **dict.fromkeys(("@id", "name", "contentUrl"), name),
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": _FORMATS[path.suffix],
        "sha256": sha256(path),
    }


def _record_set(rows: Rows) -> dict[str, Any]:
    meanings = schemas.DESCRIPTIONS[rows.schema.metadata[b"opcost.record"].decode()]
    return {
        "@type": "cr:RecordSet",
        **dict.fromkeys(("@id", "name"), rows.name),
        "description": "Measurements of operators: a row for each operator tuple and target.",
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{rows.name}/{column.name}",
                "name": column.name,
                "description": meanings[column.name],
                **_type(column.type),
                "source": {"fileObject": {"@id": rows.file}, "extract": {"column": column.name}},
            }
            for column in rows.columns
        ],
    }


def _type(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind):
        return {**_type(kind.value_type), "repeated": True}
    return {"dataType": _TYPES.get(str(kind), "sc:DateTime")}
