"""The page of commands, from their help texts."""

import copy
import inspect
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import click
from opcost.commands import main

from docs.reference.generate.layout import page, table

INTRODUCTION = """\
The workflow measures: Snakemake runs it for a study in files, `opcost run` for models named on the
command line. The other commands query the results. `make run` (as `.venv/bin/opcost`) and
`pip install .` install the command."""

SNAKEMAKE = [
    ("`snakemake --cores 1`", "Run the study in `config/config.yaml`"),
    ("`snakemake --cores 1 plan`", "Show what a run would measure, and how long it would take"),
    ("`snakemake --cores 2 models`", "Extract the models without measuring"),
    ("`snakemake --cores 1 characterize`", "Characterise the power sensors"),
    ("`snakemake --report report.zip`", "Pack the results into Snakemake's own report"),
]

MAKE = """\
`make run`, `make plan` and `make retry` run the commands below in an environment in `.venv`, which
they create. `make help` lists all targets."""

SHARED = "Every command has `--help`, which shows more examples."

_EXAMPLES = "\b\nopcost "
"""How a paragraph of examples begins; click does not wrap lines after `\\b`."""

_WIDTH = {"terminal_width": 96, "max_content_width": 96}

Option = tuple[str, str]
"""The names of an option with its value, and its help."""


def command_line_page() -> str:
    """The workflow's targets, and the help of each command; an option that several share, once."""
    top = click.Context(main, info_name="opcost", **_WIDTH, **main.context_settings)
    contexts = {
        name: click.Context(_with_one_example(command), parent=top, info_name=name, **_WIDTH)
        for name in main.list_commands(top)
        if (command := main.get_command(top, name))
    }
    commands: dict[Option, list[str]] = defaultdict(list)
    for name, context in contexts.items():
        for option in _options(context):
            commands[option].append(name)
    shared = {option: names for option, names in commands.items() if len(names) > 1}
    parts = [INTRODUCTION, "## The workflow", table(("command", "does"), SNAKEMAKE), MAKE]
    parts += ["## opcost", _help(top, _options(top)), SHARED]
    parts += ["## Shared options", _table(shared)]
    for name, context in contexts.items():
        options = _options(context)
        own = [option for option in options if option not in shared]
        parts += [f"## opcost {name}", _help(context, own)]
        if len(own) < len(options):
            parts.append("[Shared options](#shared-options)")
    return page("Command line", *parts)


def _with_one_example(command: click.Command) -> click.Command:
    """A command whose help has only the first of the examples in each paragraph of them."""
    shortened = copy.copy(command)
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    shortened.help = "\n\n".join(
        "\n".join(each.splitlines()[:2]) if each.startswith(_EXAMPLES) else each
        for each in paragraphs
    )
    return shortened


def _options(context: click.Context) -> list[Option]:
    """The options of a command, but for --help, without their least values."""
    options = [each for each in context.command.params if isinstance(each, click.Option)]
    records = [each.get_help_record(context) for each in options]
    return [
        (names.replace("INTEGER RANGE", "N"), re.sub(r" *\[x>=\d\]|; x>=\d", "", text))
        for names, text in filter(None, records)
    ]


def _help(context: click.Context, options: Collection[Option]) -> str:
    """Usage and help text of a command, and these options."""
    formatter = context.make_formatter()
    pieces = context.command.collect_usage_pieces(context)
    formatter.write_usage(context.command_path, " ".join(pieces), prefix="")
    context.command.format_help_text(context, formatter)
    if options:
        with formatter.section("Options"):
            formatter.write_dl(options)
    return f"```text\n{formatter.getvalue().rstrip()}\n```"


def _table(options: Mapping[Option, Sequence[str]]) -> str:
    """A table of options that several commands have."""
    rows = [(f"`{names}`", ", ".join(of), text) for (names, text), of in options.items()]
    return table(("option", "of", "meaning"), rows)
