"""What `pip install .` installs works without the repository.

`make wheel` builds a wheel of the last commit and tests that one (WHEEL). Otherwise, one is built
from the files here.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
PARTS = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "scripts",
    "data",
    "workflow",
    "profiles",
    "envs",
    "Snakefile",
    "setup.py",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if "WHEEL" in os.environ:
        return Path(os.environ["WHEEL"])
    source = tmp_path_factory.mktemp("source")  # building leaves files beside the sources
    for name in PARTS:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (source / name).parent.mkdir(exist_ok=True)
        copy(ROOT / name, source / name)
    wheels = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", wheels, source]
    completed = subprocess.run(command, capture_output=True, text=True)
    if "No matching distribution found for setuptools" in completed.stderr:
        pytest.skip("no network to fetch setuptools from")
    assert completed.returncode == 0, completed.stderr
    [path] = wheels.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A function that runs a command of the wheel, installed in an environment of its own.

    The packages that opcost needs are those of this environment.
    """
    environment = tmp_path_factory.mktemp("environment")
    python = environment / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    install = ["pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run([sys.executable, "-m", *install], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    folder = tmp_path_factory.mktemp("elsewhere")

    def run(program, *arguments):
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        completed = subprocess.run(
            [environment / "bin" / program, *arguments],
            cwd=folder,
            env=clean,
            capture_output=True,
            text=True,
        )
        assert completed.returncode in (0, 3), completed.stderr  # 3: answered with reservations
        return completed.stdout

    run.folder = folder
    return run


def test_the_reference_data_are_in_the_package(wheel):
    listed = zipfile.ZipFile(wheel).namelist()
    names = {Path(name).name for name in listed if name.startswith("opcost/reference/")}
    files = (ROOT / "data" / "reference").iterdir()
    assert names == {path.name for path in files if path.is_file()}


def test_the_package_says_that_it_has_types(wheel):
    assert "opcost/py.typed" in zipfile.ZipFile(wheel).namelist()


def test_the_installed_package_is_the_one_that_runs(installed):
    where = installed("python", "-c", "import opcost; print(opcost.__file__)")
    assert "environment" in where


def test_a_model_of_torchvision_is_explained(installed):
    assert "resnet18" in installed("opcost", "explain", "resnet18")


def test_a_model_config_is_explained(installed):
    shutil.copy(ROOT / "config/models/resnet34_56.yaml", installed.folder / "small.yaml")
    assert "small" in installed("opcost", "explain", "small.yaml")


def test_the_reference_data_are_queried(installed):
    folder = Path(installed("python", "-c", "import opcost; print(*opcost.__path__)").strip())
    [database, *_] = (folder / "reference").glob("*.parquet")
    assert "conv2d" in installed("opcost", "query", database, "--operator", "conv2d")


def test_a_model_is_measured(installed):
    study = (ROOT / "tests/study/config.yaml").read_text().replace("[tiny_mlp, tiny_cnn]", "[]")
    study = study.replace("tests/study/models", "config/models")
    (installed.folder / "config").mkdir()
    (installed.folder / "config/config.yaml").write_text(study)
    shutil.copy(ROOT / "tests/study/models/tiny.py", installed.folder)
    answer = installed("opcost", "run", "tiny.py:cnn", "--batch", "2", "--input", "3x8x8")
    assert "cnn_b2  2x3x8x8" in answer
    assert (installed.folder / "results/report.html").exists()
