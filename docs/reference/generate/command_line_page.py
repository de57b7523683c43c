"""The page of commands, from what they say about themselves."""

import re
from pathlib import Path

import click
from opcost.commands import main

from docs.reference.generate.layout import Row, page, table

MAKEFILE = Path(__file__).parents[3] / "Makefile"

INTRODUCTION = """\
The workflow measures; `opcost` answers questions with what was measured. `make run` installs the
command (`.venv/bin/opcost`), and so does `pip install .`"""

SNAKEMAKE = [
    ("`snakemake --cores 1`", "the study of `config/config.yaml`"),
    ("`snakemake --cores 1 plan`", "says what that would measure, and how long it would take"),
    ("`snakemake --cores 2 models`", "extracts the models, and measures nothing"),
    ("`snakemake --cores 1 characterize`", "finds out what the power sensors are like"),
    ("`snakemake --report report.zip`", "packs the results into a page of Snakemake's own"),
]

MAKE = "With an environment in `.venv`, which is made on the first use:"

_WIDTH = {"terminal_width": 96, "max_content_width": 96}


def command_line_page() -> str:
    """What the workflow offers, and the help of each command."""
    does = ("command", "does")
    top = click.Context(main, info_name="opcost", **_WIDTH, **main.context_settings)
    parts = [INTRODUCTION, "## The workflow", table(does, SNAKEMAKE), MAKE]
    parts += [table(does, _make_targets()), "## opcost", _help(main, top)]
    for name in main.list_commands(top):
        command = main.get_command(top, name)
        if command is not None:
            context = click.Context(command, parent=top, info_name=name, **_WIDTH)
            parts += [f"## opcost {name}", _help(command, context)]
    return page("Command line", *parts)


def _help(command: click.Command, context: click.Context) -> str:
    """What `--help` prints."""
    return f"```text\n{command.get_help(context)}\n```"


def _make_targets() -> list[Row]:
    """The targets that `make` lists."""
    text = MAKEFILE.read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):.*## (.+)$", text, re.MULTILINE)
    return [(f"`make {name}`", meaning) for name, meaning in targets]
