"""What identifies this machine, its user and its cards, and the search for it in files."""

import getpass
import platform
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from glob import glob
from pathlib import Path

import pyarrow.parquet as pq

from opcost.devices.machine import hashed_uuid, machine_id_hash
from opcost.energy.meter import MeterUnavailable
from opcost.energy.nvml import device_serials, device_uuids
from opcost.errors import OpcostError
from opcost.files import first_line
from opcost.publishing.cleaning import is_text
from opcost.rows import records
from opcost.text import some

SERIALS = (
    "/etc/machine-id",
    "/sys/class/dmi/id/*_uuid",
    "/sys/class/dmi/id/*_serial",
    "/sys/class/net/*/address",
)
"""Files with ids of a machine, as far as this user may read them."""

_COMMON = {"root", "user", "ubuntu", "localhost"}
"""Names of no one in particular."""
_MOST = 5
_ESCAPE = re.compile(r"\\+(?:u([\da-fA-F]{4})|.)")
"""Of a character in JSON, or in JSON in JSON."""


def of_this_machine() -> dict[str, str]:
    """Text that identifies this machine, its user or its cards -> what it is."""
    host = platform.node()
    found = {
        host: "host name",
        host.partition(".")[0]: "host name",
        str(Path.home()): "home folder",
    }
    with suppress(KeyError, OSError):  # a container's user may have no name
        found[getpass.getuser()] = "user name"
    lines = {first_line(Path(path)) for pattern in SERIALS for path in glob(pattern)}
    # Firmware without an id says 0, or `Not Specified`.
    ids = {each for each in lines if re.search(r"\d", each) and len({*each} - {*" .:-0"}) > 3}
    for known in (device_uuids, device_serials):
        with suppress(MeterUnavailable):
            ids.update(known())
    digests = filter(None, [*map(hashed_uuid, ids), machine_id_hash()])
    found |= dict.fromkeys(ids, "serial number or UUID") | dict.fromkeys(digests, "digest of an id")
    return {text: what for text, what in found.items() if len(text) > 1 and text not in _COMMON}


def as_word(text: str) -> str:
    """A pattern for the text where no letter or digit precedes or follows it."""
    return rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])"


def refuse_identifying(folder: Path, identifying: Mapping[str, str]) -> None:
    """Raise OpcostError, which says where, if a file of a folder has one of these texts: as a word,
    or anywhere if it has five letters.

    `identifying` says what each text is.
    """
    what = {text.lower(): each for text, each in identifying.items()}
    either = (
        re.escape(each) if sum(map(str.isalpha, each)) >= 5 else as_word(each)
        for each in sorted(identifying, key=len, reverse=True)
    )
    pattern = re.compile("|".join(either) or "(?!)", re.IGNORECASE)
    found = {
        f"{path.relative_to(folder)}, {place}: {match[0]!r} ({what[match[0].lower()]})": match[0]
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for place, text in _texts(path)
        for said in (text, _ESCAPE.sub(lambda code: chr(int(code[1] or "20", 16)), text))
        for match in pattern.finditer(said)
    }
    if found:
        raise OpcostError(
            f"nothing is published, because files would identify: {some([*found], _MOST)}. Rename "
            "what is named so, such as the target, or publish it, if it identifies nobody: "
            + " ".join(f"--allow {shlex.quote(each)}" for each in sorted({*found.values()}))
        )


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Every text in a file, with its place."""
    if path.suffix != ".parquet":
        lines = path.read_text(encoding="utf-8").splitlines()
        yield from ((f"line {number}", line) for number, line in enumerate(lines, 1))
        return
    metadata = records.metadata(path)
    yield from ((f"metadata {key}", metadata[key]) for key in metadata.keys() - {"ARROW:schema"})
    file = pq.ParquetFile(path)
    names = [field.name for field in file.schema_arrow if is_text(field.type)]
    for batch in file.iter_batches(columns=names):
        for name in names:
            yield from ((f"column {name}", text) for text in {*map(str, batch[name].to_pylist())})
