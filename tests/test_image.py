"""What the container file says, and how `make image` builds it. No image is built here."""

import os
import re
import shlex
import subprocess

import pytest

from tests.documents import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
TEXT = (ROOT / "envs/Containerfile").read_text()
INSTRUCTIONS = [
    tuple(line.split(maxsplit=1))
    for line in re.sub(r"^#.*\n|\\\n", "", TEXT, flags=re.MULTILINE).splitlines()
]
BUILDERS = ("docker", "podman", "buildah")


def of(name):
    """What follows the instructions of that name."""
    return [rest for each, rest in INSTRUCTIONS if each == name]


def test_instructions_are_known_and_begin_with_one_base():
    known = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "RUN", "USER", "VOLUME", "WORKDIR"}
    assert {name for name, _ in INSTRUCTIONS} == known
    assert INSTRUCTIONS[0][0] == "FROM"
    assert len(of("FROM")) == 1


def test_what_is_copied_exists_and_git_tracks_it():
    for rest in of("COPY"):
        owner, *sources, target = rest.split()
        assert owner == "--chown=opcost"
        for source in sources:
            command = ["git", "ls-files", "--", source]
            tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
            assert tracked, f"{source} is not in the repository"
            assert target in ("./", source)


def test_what_the_package_needs_is_copied():
    copied = {source for rest in of("COPY") for source in rest.split()[1:-1]}
    links = (each for each in (ROOT / "scripts/opcost").iterdir() if each.is_symlink())
    needed = {each.resolve().relative_to(ROOT).parts[0] for each in links}
    wheel = re.findall(
        r"^(?:include|graft) (\w+)", (ROOT / "MANIFEST.in").read_text(), re.MULTILINE
    )
    assert needed | set(wheel) | {"config", "Makefile", "requirements.txt"} <= copied


def test_versions_come_from_the_requirements_alone():
    assert "==" not in TEXT
    [install] = [rest for rest in of("RUN") if rest.startswith("PIP_")]
    assert install.endswith(" make .venv/run TORCH=$TORCH TORCH_INDEX=$TORCH_INDEX")
    assert {"$(VENV)/run:", "TORCH ?=", "TORCH_INDEX ?="} <= {
        found.group() for found in re.finditer(r"^(\S+:|\S+ \?=)", MAKEFILE, re.MULTILINE)
    }


def test_it_takes_the_arguments_that_make_image_gives():
    arguments = {each.partition("=")[0] for each in of("ARG")}
    assert arguments == set(re.findall(r"--build-arg (\w+)=", MAKEFILE))


def test_it_runs_the_command_of_make_run_as_a_user():
    program, arguments = (shlex.split(of(each)[-1].strip("[]")) for each in ("ENTRYPOINT", "CMD"))
    assert f"\n\t@$(BIN)/{' '.join(program + arguments)} $(MODELS)\n" in MAKEFILE
    assert of("USER") == ["opcost"]
    names = [name for name, _ in INSTRUCTIONS]
    assert names.index("USER") < names.index("COPY")


def test_study_and_results_are_volumes():
    assert of("VOLUME") == ["/opcost/config /opcost/results"]
    assert of("WORKDIR") == ["/opcost"]


@pytest.fixture
def make_image(tmp_path):
    """Runs `make image` where each of the builders is a script."""

    def run(*arguments, **scripts):
        for builder in BUILDERS:
            path = tmp_path / builder
            path.write_text(f"#!/bin/sh\n{scripts.get(builder, 'echo no daemon >&2; exit 1')}\n")
            path.chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
        command = ["make", "--no-print-directory", "image", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    return run


def test_the_first_builder_that_runs_builds_it(make_image):
    says = '[ "$1" = info ] || echo podman "$@"'
    index = "https://example.org/cpu"
    ran = make_image("TORCH=cpu", f"TORCH_INDEX={index}", podman=says, buildah=says)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == (
        "podman build --file envs/Containerfile --tag opcost:cpu --build-arg TORCH=cpu "
        f"--build-arg TORCH_INDEX={index} --build-arg USER_ID=1000 .\n"
    )


def test_a_build_that_fails_is_not_tried_with_another_builder(make_image):
    says = '[ "$1" = info ] || { echo "$0 failed"; exit 1; }'
    ran = make_image(docker=says, podman=says)
    assert ran.returncode != 0
    assert ran.stdout.count("failed") == 1


def test_without_a_builder_one_sentence_says_what_is_missing(make_image):
    ran = make_image()
    assert ran.returncode != 0
    assert ran.stderr.splitlines()[0] == (
        "make image needs docker, podman or buildah, and none runs here; docker: no daemon; "
        "podman: no daemon; buildah: no daemon"
    )
