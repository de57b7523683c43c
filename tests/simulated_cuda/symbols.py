"""The functions that a shared library takes from others, as its ELF headers list them."""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

SYMBOLS, STRINGS, NEEDED_VERSIONS, VERSIONS = 11, 3, 0x6FFFFFFE, 0x6FFFFFFF
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")


def undefined(path: Path) -> Iterator[tuple[str, str]]:
    """Each undefined symbol of a 64-bit library, and its version ("" if it has none)."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        (table,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        headers = [SECTION.unpack_from(data, table + size * i) for i in range(count)]
        sections = {header[1]: header for header in headers}
        offset, length, link = (sections[SYMBOLS][i] for i in (4, 5, 6))
        names = headers[link][4]
        versions = needed_versions(data, headers, sections)
        numbers = sections[VERSIONS][4] if VERSIONS in sections else None
        for index in range(1, length // SYMBOL.size):
            name, _, _, section, _, _ = SYMBOL.unpack_from(data, offset + SYMBOL.size * index)
            if section:
                continue
            number = numbers and struct.unpack_from("<H", data, numbers + 2 * index)[0]
            yield text(data, names + name), versions.get(number, "")


def needed_versions(data, headers, sections) -> dict[int, str]:
    """The name of each version that the library needs of others, by its number."""
    if NEEDED_VERSIONS not in sections:
        return {}
    _, _, _, _, at, _, link, files, _, _ = sections[NEEDED_VERSIONS]
    names, found = headers[link][4], {}
    for _ in range(files):
        _, count, _, first, following = struct.unpack_from("<HHIII", data, at)
        version = at + first
        for _ in range(count):
            _, _, number, name, after = struct.unpack_from("<IHHII", data, version)
            found[number] = text(data, names + name)
            version += after
        at += following
    return found


def text(data, start: int) -> str:
    """The text that begins there."""
    return data[start : data.find(b"\0", start)].decode()
