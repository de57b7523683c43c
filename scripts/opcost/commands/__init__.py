"""The command line. One module for each command: it parses, calls the library, and prints.

Exit codes: 0 answered; 1 it could not be done, standard error says why; 2 the command was not
understood; 3 answered, but look at it: something is missing or has changed.
"""

import importlib
from typing import Any

import click

import opcost
from opcost.errors import reported

_COMMANDS = {
    "explain": "Say what a model costs on each target of a database.",
    "query": "Rows of databases by operator, shape, type, target and more.",
    "diff": "What changed between two databases beyond its uncertainty.",
    "export": "A database as CSV, SQLite or DuckDB.",
    "merge": "Merge databases of several machines or days into one.",
    "import": "Make a database of the records that others publish.",
    "set-aside": "Keep a target's measurements under another name, to measure it once more.",
    "completion": "What makes the shell complete commands, operators and targets.",
}
LOOK_AT_IT = 3
"""Exit code of an answer that is not the whole one, or not the expected one."""


class _Commands(click.Group):
    """Imports a command when it is asked for: PyTorch and pandas take seconds."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = cmd_name.replace("-", "_")
        return importlib.import_module(f"opcost.commands.{module}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        with reported():
            return super().invoke(ctx)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(opcost.__version__, prog_name="opcost")
def main() -> None:
    """What does this neural network cost, in seconds and in joules, and where does it go?

    Databases are measured by the Snakemake workflow (snakemake --cores 1); these commands answer
    questions with them. Each has its own help: opcost merge --help. The shell completes commands,
    operators and targets once it is told how: opcost completion --help.

    Exit codes: 0 answered; 1 could not be done; 2 not understood; 3 answered, but something is
    missing or has changed.
    """
