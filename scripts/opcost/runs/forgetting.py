"""Put measurements aside so that the next run makes them again, and back what it did not make."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from opcost.addresses import Addresses
from opcost.errors import OpcostError, closest
from opcost.results_folder import all_measurements, series_of
from opcost.rows import records, schemas
from opcost.rows.flags import FLAGS
from opcost.study import Study
from opcost.tuples.model_tuples import read_model_tuples

_ASIDE = ".before"


class Forgotten(NamedTuple):
    """A file that was put aside, why, and the models for which it was made."""

    path: Path
    reason: str
    models: list[str]


def check_flags(flags: Collection[str]) -> None:
    """Raise OpcostError for a name that is not a flag."""
    for name in flags:
        if name not in FLAGS:
            raise OpcostError(f"{name!r} is not a flag. {closest(name, FLAGS)}".rstrip())


def forget(study: Study, flags: Collection[str], forgotten: set[Path]) -> Iterator[Forgotten]:
    """Put a study's measurements and traces aside that failed or have one of these flags, and add
    their paths to `forgotten`; paths in it are skipped.
    """
    for found in _to_forget(study, flags):
        if found.path not in forgotten:
            found.path.rename(_aside(found.path))
            forgotten.add(found.path)
            yield found


def put_back(results: Path) -> int:
    """Put back what was put aside, now or by a command that was killed, and not made again since.
    Returns how many.
    """
    count = 0
    for aside in results.rglob(f"*{_ASIDE}"):
        path = aside.with_name(aside.name.removesuffix(_ASIDE))
        if path.exists():
            aside.unlink()
        else:
            aside.rename(path)
            count += 1
    return count


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}{_ASIDE}")


def _to_forget(study: Study, flags: Collection[str]) -> Iterator[Forgotten]:
    addresses = Addresses(study)
    made_for: dict[str, list[str]] = defaultdict(list)
    for model in study.models:
        made_for[addresses.definition(model)].append(model)
        if (extraction := addresses.extraction(model)).exists():
            for tuple_id in read_model_tuples(extraction).by_id:
                made_for[tuple_id].append(model)
    for target, folder in addresses.folders.items():
        for path in all_measurements(folder):
            if path.stem in made_for and (reason := _reason(path, flags)):
                yield Forgotten(path, reason, made_for[path.stem])
        for model in study.models:
            path = addresses.recording(target, model)
            reason = read_model_tuples(path).not_recorded if path.exists() else None
            if reason is not None:
                yield Forgotten(path, reason, [model])


def _reason(path: Path, flags: Collection[str]) -> str | None:
    """Why a measurement must be repeated, or None."""
    schema, names = schemas.MEASUREMENTS[series_of(path).kind], ["status", "error", "flags"]
    [row] = records.read(path, schema, names).to_pylist()
    if row["status"] != "ok":
        return f"{row['status']}: {row['error']}"
    return ", ".join(flag for flag in row["flags"] or () if flag in flags) or None
