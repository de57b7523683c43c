"""The page of commands, from their help texts."""

from collections import Counter
from collections.abc import Collection, Iterable

import click
from opcost.commands import main

from docs.reference.generate.layout import page, table

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

MAKE = """\
`make run`, `make plan` and `make retry` do the same as `opcost run`, `plan` and `retry`, in an
environment in `.venv` that is created on first use. `make help` lists all targets."""

SHARED = "Several commands share these options. Every command has `--help`."

_WIDTH = {"terminal_width": 96, "max_content_width": 96}

Option = tuple[str, str]
"""The names of an option with its value, and its help."""


def command_line_page() -> str:
    """The workflow's targets, and the help of each command; an option that several share, once."""
    top = click.Context(main, info_name="opcost", **_WIDTH, **main.context_settings)
    contexts = {
        name: click.Context(command, parent=top, info_name=name, **_WIDTH)
        for name in main.list_commands(top)
        if (command := main.get_command(top, name))
    }
    options = {name: _options(context) for name, context in contexts.items()}
    counts = Counter(option for listed in options.values() for option in listed)
    shared = [option for option, commands in counts.items() if commands > 1]
    parts = [INTRODUCTION, "## The workflow", table(("command", "does"), SNAKEMAKE), MAKE]
    parts += ["## opcost", _help(top, _options(top))]
    parts += ["## Shared options", SHARED, _table(shared)]
    for name, context in contexts.items():
        own = [option for option in options[name] if option not in shared]
        parts += [f"## opcost {name}", _help(context, own)]
        if len(own) < len(options[name]):
            parts.append(_references(option for option in options[name] if option in shared))
    return page("Command line", *parts)


def _options(context: click.Context) -> list[Option]:
    """The options of a command, but for --help."""
    options = [each for each in context.command.params if isinstance(each, click.Option)]
    records = [each.get_help_record(context) for each in options]
    return [(names.replace("INTEGER RANGE", "N"), text) for names, text in filter(None, records)]


def _help(context: click.Context, options: Collection[Option]) -> str:
    """The output of `--help`, with only these options."""
    formatter = context.make_formatter()
    context.command.format_usage(context, formatter)
    context.command.format_help_text(context, formatter)
    if options:
        with formatter.section("Options"):
            formatter.write_dl(options)
    return f"```text\n{formatter.getvalue().rstrip()}\n```"


def _table(options: Iterable[Option]) -> str:
    return table(("option", "meaning"), [(f"`{names}`", text) for names, text in options])


def _references(options: Iterable[Option]) -> str:
    """Shared options, without their values."""
    names = (f"`{names.split(', ')[-1].partition(' ')[0]}`" for names, _ in options)
    return f"[Shared options](#shared-options): {', '.join(names)}"
