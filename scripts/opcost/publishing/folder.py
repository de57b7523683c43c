"""The folder of a publication."""

import re
from collections.abc import Collection, Sequence
from itertools import chain, count
from pathlib import Path

from opcost.databases import collection
from opcost.databases.database import REFERENCE, read_database, stream_database
from opcost.databases.model_ratios import metadata, read_ratios
from opcost.energy.sensor import IDENTITY, read_document
from opcost.errors import OpcostError
from opcost.files import parse_json, replacing_folder, write_json
from opcost.publishing.about import About, Rows, about, parse_author
from opcost.publishing.card import COLUMNS, as_yaml, card
from opcost.publishing.cleaning import Cleaning
from opcost.publishing.croissant import croissant, sha256
from opcost.publishing.identity import as_word, of_this_machine, refuse_identifying
from opcost.rows import records

_SUMS = "SHA256SUMS"
_CROISSANT = "croissant.json"
_REFERENCE = " (reference data of opcost, CC0-1.0)"


def publish(
    folder: Path,
    databases: Sequence[Path],
    authors: Sequence[str],
    license: str,
    title: str = "",
    sources: Sequence[str] = (),
    allowed: Sequence[str] = (),
) -> int:
    """Write databases, and the files of their sensors, into a folder, completely or not at all.

    Returns the number of rows. Raises OpcostError for a folder that is neither new, nor empty, nor
    as this function left it, and if a file would name this machine, its user or a card, other than
    by a text in `allowed` or a word of title, authors and sources, and if `_origins` lack sources.
    """
    named = [*map(parse_author, authors)]
    folder = folder.resolve()
    if folder.exists() and not _is_replaceable(folder):
        raise OpcostError(
            f"{folder} holds other files than opcost publish writes, or changed ones: name a new "
            "or an empty folder"
        )
    origins = [*dict.fromkeys(name for path in databases for name in _origins(path))]
    if origins and not sources:
        raise OpcostError(
            f"the origin of {' and '.join(origins)} would be lost: name it with --source, once for "
            "each, as a citation or a URL, or as 'own measurements'"
        )
    cleaning = Cleaning()
    with replacing_folder(folder) as new:
        published: list[Rows] = []
        for path in databases:
            name = _free(path.stem, [each.name for each in published])
            published.append(_write_rows(path, name, new, cleaning))
            _write_sensors(path.parent, published[-1], new / "sensors", cleaning)
        publication = about(title, named, [*origins, *sources], license, published)
        _describe(new, publication)
        said = " ".join([*authors, *sources, title])
        known = of_this_machine() | dict.fromkeys(cleaning.ids, "digest of an id")
        meant = {each for each in known if re.search(as_word(each), said, re.IGNORECASE)}
        meant |= {each for each in known if each.lower() in map(str.lower, allowed)}
        refuse_identifying(new, {each: known[each] for each in known.keys() - meant})
    return len(publication.rows)


def _origins(path: Path) -> list[str]:
    """The databases in a database, if they are several or reference data of opcost."""
    known = {sha256(each)[:16]: f"{each.stem}{_REFERENCE}" for each in REFERENCE.glob("*.parquet")}
    text = collection.metadata_of(path).get("opcost.sources", "{}")
    held = parse_json(text, f"{path}: its list of sources", "merge its databases again")
    held = held or {sha256(path)[:16]: {"names": [path]}}
    if len(held) == 1 and not held.keys() & known:
        return []
    return [known.get(each) or Path(min(held[each]["names"])).stem for each in held]


def _is_replaceable(folder: Path) -> bool:
    """Whether a folder is empty, or holds exactly what `publish` wrote there."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return folder.is_dir()
    try:
        lines = (folder / _SUMS).read_text(encoding="utf-8")
        return _CROISSANT in lines and lines == _sums(folder)
    except (OSError, UnicodeDecodeError):
        return False


def _sums(folder: Path) -> str:
    """The lines of `sha256sum` for all other files of a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _SUMS)
    return "".join(f"{sha256(path)}  {path.relative_to(folder)}\n" for path in paths)


def _free(name: str, taken: Collection[str]) -> str:
    """The name in letters, digits and `_.-`, numbered if it is taken."""
    safe = re.sub(r"[^\w.-]", "_", name)
    names = chain([safe], (f"{safe}_{number}" for number in count(2)))
    return next(each for each in names if each not in taken)


def _write_rows(path: Path, name: str, folder: Path, cleaning: Cleaning) -> Rows:
    schema, batches = stream_database(path)
    file = folder / "data" / f"{name}.parquet"
    records.write_batches(
        file,
        schema,
        cleaning.batches(batches),
        lambda: metadata(cleaning.ratios(read_ratios(path))),
    )
    frame = read_database(file, COLUMNS).to_pandas()
    if frame.empty:
        raise OpcostError(f"{path} has no row: there is nothing to publish")
    return Rows(name, str(file.relative_to(folder)), schema, frame)


def _write_sensors(results: Path, rows: Rows, folder: Path, cleaning: Cleaning) -> None:
    """Of the sensors that were characterised beside a database, those of its devices."""
    for path in sorted([*results.glob("*/sensor.json"), *results.glob("*/*/sensor.json")]):
        document = cleaning.sensor(read_document(path))
        known = (name for name in IDENTITY if document.get(name))
        if document["meter"] and all(document[name] in {*rows.frame[name]} for name in known):
            taken = [each.stem for each in folder.glob("*.json")]
            name = _free(path.relative_to(results).parts[0], taken)
            write_json(folder / f"{name}.json", document)


def _describe(folder: Path, publication: About) -> None:
    """Write all but the data."""
    citation = {
        "cff-version": "1.2.0",
        "message": f"If you use these measurements, please cite them: {publication.citation}",
        "type": "dataset",
        "title": publication.title,
        "abstract": publication.summary,
        "authors": publication.authors,
        "date-released": publication.date,
        "version": publication.version,
        "license": publication.license,
        "keywords": publication.keywords,
    }
    texts = {
        "README.md": card(publication, (folder / "sensors").exists()),
        "CITATION.cff": as_yaml(citation),
        "LICENSE": f"{publication.citation}\n\nSPDX-License-Identifier: {publication.license}\n"
        f"Text of the licence: {publication.license_url}\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_json(folder / _CROISSANT, croissant(publication, folder))
    (folder / _SUMS).write_text(_sums(folder), encoding="utf-8")
