"""Whether a command that a page tells people to type exists, with its options. Nothing is run."""

import re
import shlex
import subprocess
from collections.abc import Iterator

import click
from opcost.commands import main
from opcost.configuration import read_schema
from snakemake.cli import get_argument_parser

from tests.documents import ROOT

_SNAKEMAKE = get_argument_parser()
_RULES = {
    name
    for path in [ROOT / "Snakefile", *ROOT.glob("workflow/**/*.smk"), ROOT / "workflow/Snakefile"]
    for name in re.findall(r"^(?:rule|checkpoint) (\w+):", path.read_text(), re.MULTILINE)
}


def check(text: str) -> None:
    """Raise AssertionError for a line that no shell takes, or a command that does not exist."""
    # <name> stands for what the reader knows.
    text = re.sub(r"<[\w ]+>", "PLACEHOLDER", text)
    parsed = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    assert parsed.returncode == 0, parsed.stderr
    for words in _simple_commands(text):
        path, *arguments = words
        name = path.removeprefix(".venv/bin/")
        assert name in _CHECKS, f"nothing checks {name!r}: name it in {__file__}"
        _CHECKS[name](arguments)


def _simple_commands(text: str) -> Iterator[list[str]]:
    for line in text.replace("\\\n", " ").splitlines():
        tokens = shlex.shlex(line, posix=True, punctuation_chars=True)
        tokens.whitespace_split = True
        words: list[str] = []
        for token in [*tokens, ";"]:
            if set(token) <= set("&|;"):
                if words:
                    yield words
                words = []
            elif set(token) <= set("<"):
                raise AssertionError(f"put quotes around {line!r}: the shell would open a file")
            elif words or not re.match(r"\w+=", token):  # not a variable before the command
                words.append(token)


def _snakemake(arguments: list[str]) -> None:
    found = _SNAKEMAKE.parse_args(arguments)
    for target in [*found.targets, *found.forcerun]:
        assert target in _RULES or str(target).startswith("results/"), f"no rule {target!r}"
    for path in [*found.configfile, *([found.workflow_profile] if found.workflow_profile else [])]:
        assert (ROOT / path).exists(), f"there is no {path}"
    schema = read_schema("config")
    for setting in found.config or ():
        key = setting.partition("=")[0]
        assert key in schema["properties"], f"the configuration has no key {key!r}"


def _opcost(arguments: list[str]) -> None:
    context = click.Context(main, info_name="opcost", **main.context_settings)
    command: click.Command | None = main
    if "--" in arguments:  # what follows is the command of another program
        arguments = arguments[: arguments.index("--")]
    name, *rest = arguments
    if not name.startswith("-"):
        command = main.get_command(context, name)
        assert command is not None, f"opcost has no command {name!r}"
        context = click.Context(command, parent=context, info_name=name)
        arguments = rest
    options = {option for each in command.get_params(context) for option in each.opts}
    for option in (argument.partition("=")[0] for argument in arguments):
        assert not option.startswith("-") or option in options, f"opcost has no option {option}"


def _make(arguments: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for argument in arguments:
        pattern = rf"^{argument.partition('=')[0]}( \?=|:)"
        assert re.search(pattern, makefile, re.MULTILINE), f"make has no {argument!r}"


def _python(arguments: list[str]) -> None:
    script, *rest = arguments
    if script == "-c":
        return
    if script == "-m":
        module, *rest = rest
        if not module.startswith("tests."):
            return
        script = module.replace(".", "/")
        script += "/__main__.py" if (ROOT / script).is_dir() else ".py"
    path = ROOT / script
    assert path.exists(), f"there is no {script}"
    source = path.read_text(encoding="utf-8")
    for argument in rest:
        if argument.startswith("-"):
            assert f'"{argument}"' in source, f"{script} has no option {argument}"


def _pip(arguments: list[str]) -> None:
    if "-r" in arguments:
        path = arguments[arguments.index("-r") + 1]
        assert (ROOT / path).exists(), f"there is no {path}"


def _anything(arguments: list[str]) -> None:
    """Programs that opcost has no say in."""


_CHECKS = {
    "cd": _anything,
    "eval": _anything,
    "git": _anything,
    "hf": _anything,
    "make": _make,
    "opcost": _opcost,
    "pip": _pip,
    "python": _python,
    "snakemake": _snakemake,
    "source": _anything,
}
