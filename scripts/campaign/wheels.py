"""The packages that a host lacks: those that opcost is pinned to, less those that it has.

`describe` runs on the host, without further packages; `fetch` where there is a network, in
an environment with the pinned packages.
"""

import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from opcost.files import read_json
from opcost.values import PRINTABLE, Rule, check_values, optional, text

_VERSION = text(r"v?\d[\w.+!-]*", "a version such as 3.12.1")
_PACKAGES = Rule(
    "an object of versions, or null for one",
    lambda value: isinstance(value, dict) and all(map(optional(_VERSION).holds, value.values())),
)
_RULES = {"python": _VERSION, "glibc": _VERSION, "machine": PRINTABLE, "packages": _PACKAGES}

AT_HOME = ("altair", "vl-convert-python", "itables", "pygments")
"""Only the report needs these, which is made at home."""


def describe() -> dict[str, Any]:
    """The Python, the C library and the packages of this host."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "glibc": platform.libc_ver()[1],
        "packages": {each.name: each.version for each in metadata.distributions()},
    }


def fetch(host: Mapping[str, Any], requirements: Path, folder: Path) -> list[str]:
    """Download the wheels that the host lacks into the folder.

    Returns the packages of which there is no wheel for it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pins = re.findall(r"^[\w.-]+==[^\s#]+", requirements.read_text(), re.MULTILINE)
    failed = []
    for name, version in sorted(lacking(pins, host).items()):
        pin = f"{name}=={version}"
        if not (_downloaded(pin, host, folder) or _built(pin, folder)):
            failed.append(pin)
    return failed


def lacking(pins: list[str], host: Mapping[str, Any]) -> dict[str, str]:
    """Names and versions of what the pins need there and the host lacks.

    A package of the host stands for the pinned one, whatever its version, unless a package that is
    fetched refuses that version. One whose version is unknown (null) is accepted.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    has = {canonicalize_name(name): version for name, version in host["packages"].items()}
    environment = {"python_full_version": host["python"], "extra": ""}
    environment["python_version"] = ".".join(host["python"].split(".")[:2])
    names = [canonicalize_name(Requirement(pin).name) for pin in pins]
    waiting = [Requirement(name) for name in names if name not in AT_HOME]
    found: dict[str, str] = {}
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if wanted.marker is not None and not wanted.marker.evaluate(environment):
            continue
        version = has.get(name, "")
        if name in found or version is None or (version and wanted.specifier.contains(version)):
            continue
        found[name] = metadata.version(name)
        waiting += map(Requirement, metadata.requires(name) or [])
    return found


def _downloaded(pin: str, host: Mapping[str, Any], folder: Path) -> bool:
    platforms = [f"--platform={tag}" for tag in _platforms(host)]
    for_host = [f"--python-version={host['python']}", "--implementation=cp", *platforms]
    return _pip("download", "--only-binary=:all:", *for_host, "-d", str(folder), pin)


def _built(pin: str, folder: Path) -> bool:
    """From source, which another Python can use if it is Python alone."""
    before = set(folder.iterdir())
    _pip("wheel", "-w", str(folder), pin)
    new = set(folder.iterdir()) - before
    for path in new:
        if not path.name.endswith("-none-any.whl"):
            path.unlink()
    return any(path.exists() for path in new)


def _pip(*arguments: str) -> bool:
    quiet = ["-q", "--disable-pip-version-check", "--no-deps"]
    command = [sys.executable, "-m", "pip", *arguments[:1], *quiet, *arguments[1:]]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


def _platforms(host: Mapping[str, Any]) -> Iterator[str]:
    """pip takes no other wheel than one for a platform that is named exactly."""
    newest = int(host["glibc"].split(".")[1])
    for minor in range(newest, 4, -1):
        yield f"manylinux_2_{minor}_{host['machine']}"
    for name in ("manylinux2014", "manylinux2010", "manylinux1"):
        yield f"{name}_{host['machine']}"


def install(folder: Path, there: Path) -> None:
    """Install the wheels of a folder into another, without network."""
    wheels = sorted(map(str, folder.glob("*.whl")))
    options = ["-q", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(there)]
    subprocess.run([*command, *wheels], check=True)


def read_host(path: Path) -> dict[str, Any]:
    """What `describe` printed on the host. Raises OpcostError for anything else."""
    remedy = "print it again on the host, with `python3 -m campaign describe`"
    host = read_json(path, remedy)
    check_values(host, _RULES, path, remedy)
    return host
