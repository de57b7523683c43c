"""A tag publishes packages that fit it, and no others."""

import io
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
import yaml

from tests.documents import ROOT

URLS = [
    f"{name}, https://example.org" for name in ("Homepage", "Documentation", "Issues", "Changelog")
]


@pytest.fixture
def release(tmp_path):
    """What the check says of packages and a changelog, for the tag v1.2.0; "" if it allows them."""

    def release(version="1.2.0", urls=URLS, changes="## [1.2.0] - 2026-12-24"):
        lines = [f"Version: {version}", *(f"Project-URL: {each}" for each in urls)]
        metadata = "\n".join(["Name: opcost", *lines, ""]).encode()
        (tmp_path / "dist").mkdir()
        with zipfile.ZipFile(tmp_path / "dist/opcost-py3-none-any.whl", "w") as wheel:
            wheel.writestr("opcost.dist-info/METADATA", metadata)
        with tarfile.open(tmp_path / "dist/opcost-1.tar.gz", "w:gz") as source:
            member = tarfile.TarInfo("opcost-1/PKG-INFO")
            member.size = len(metadata)
            source.addfile(member, io.BytesIO(metadata))
        (tmp_path / "CHANGELOG.md").write_text(changes)
        command = [sys.executable, ROOT / ".ci/check_release", "v1.2.0"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == bool(done.stderr)
        return done.stderr

    return release


def test_packages_of_the_tag_with_their_urls_are_published(release):
    assert release() == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": "1.3.0"}, "a package has version 1.3.0, the tag v1.2.0"),
        ({"urls": URLS[1:]}, "[project.urls] in pyproject.toml has no Homepage"),
        (
            {"urls": ["Homepage, TODO", *URLS[1:]]},
            "[project.urls] in pyproject.toml has no Homepage",
        ),
        (
            {"changes": "## [1.2.0] - Unreleased"},
            "CHANGELOG.md has no section of 1.2.0 with a date",
        ),
    ],
)
def test_others_are_refused_with_the_reason(changed, said, release):
    assert release(**changed) == said + "\n"


def test_only_checked_and_tested_packages_are_published_and_without_a_stored_secret():
    text = (ROOT / ".github/workflows/release.yaml").read_text()
    workflow = yaml.safe_load(text)
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # `on` is a boolean of YAML
    assert workflow["permissions"] == {"contents": "read"}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    commands = [step["run"] for step in build["steps"] if "run" in step]
    for each in ("python -m build", "twine check", ".ci/check_release", "test_package.py"):
        assert any(each in command for command in commands), each
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi"
    assert "secrets." not in text


def test_the_package_says_who_made_it_under_which_licence_for_which_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["authors"]
    assert project["license-files"] == ["LICENSE"]
    matrix = yaml.safe_load((ROOT / ".github/workflows/checks.yaml").read_text())["jobs"]["package"]
    stated = {each.rpartition(" ")[2] for each in project["classifiers"] if "Python :: 3." in each}
    assert stated == {*matrix["strategy"]["matrix"]["python"]}


def test_the_source_distribution_has_all_that_the_wheel_takes_from_it():
    named = (ROOT / "MANIFEST.in").read_text().split()
    patterns = (ROOT / "setup.py").read_text().split("WORKFLOW = (")[1].split(")")[0]
    for pattern in patterns.replace('"', "").split(","):
        assert {pattern.strip(), pattern.strip().partition("/")[0]} & {*named}, pattern
