"""What `pip install .` installs, without the repository."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy of the repository, because building leaves files in it."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("scripts", "data"):
        shutil.copytree(ROOT / name, source / name, symlinks=True)
    wheels = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", wheels, source]
    completed = subprocess.run(command, capture_output=True, text=True)
    if "No matching distribution found for setuptools" in completed.stderr:
        pytest.skip("no network to fetch setuptools from")
    assert completed.returncode == 0, completed.stderr
    [path] = wheels.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_reference_data_are_in_the_package(wheel):
    names = {Path(name).name for name in wheel.namelist() if name.startswith("opcost/reference/")}
    assert names == {path.name for path in (ROOT / "data" / "reference").iterdir()}
