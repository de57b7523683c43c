"""The page of commands, from their help texts."""

import re
from pathlib import Path

import click
from opcost.commands import main

from docs.reference.generate.layout import Row, page, table

MAKEFILE = Path(__file__).parents[3] / "Makefile"

INTRODUCTION = """\
The workflow measures: Snakemake runs it for a study in files, and `opcost run` for models that are
named on the command line. The other commands query the results. Both `make run` (as
`.venv/bin/opcost`) and `pip install .` install the command."""

SNAKEMAKE = [
    ("`snakemake --cores 1`", "Run the study in `config/config.yaml`"),
    ("`snakemake --cores 1 plan`", "Show what a run would measure, and how long it would take"),
    ("`snakemake --cores 2 models`", "Extract the models without measuring"),
    ("`snakemake --cores 1 characterize`", "Characterise the power sensors"),
    ("`snakemake --report report.zip`", "Pack the results into Snakemake's own report"),
]

MAKE = "With an environment in `.venv`, created on first use:"

_WIDTH = {"terminal_width": 96, "max_content_width": 96}


def command_line_page() -> str:
    """The workflow's targets and the help of each command."""
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
    """The output of `--help`."""
    return f"```text\n{command.get_help(context)}\n```"


def _make_targets() -> list[Row]:
    """The targets listed by `make`."""
    text = MAKEFILE.read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):.*## (.+)$", text, re.MULTILINE)
    return [(f"`make {name}`", meaning) for name, meaning in targets]
