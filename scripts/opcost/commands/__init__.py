"""The command line. Each command is a module that parses arguments, calls the library, and prints.

Exit codes: 0 success; 1 error (the reason is on standard error); 2 usage error; 3 the result is
incomplete or shows a change; 4 opcost diff cannot decide whether something changed.
"""

import importlib
from typing import Any

import click

import opcost
from opcost.errors import reported

_COMMANDS = {
    "run": "Measure models, and print what they cost.",
    "operator": "Measure an operator without a model, over sizes, arguments, dtypes and zeros.",
    "profile": "Print the time of operators inside running models; measures what is missing.",
    "plan": "Print what a run would measure, in how much time and memory.",
    "report": "Make the report of the study here, or of any database.",
    "retry": "Measure again what failed or is flagged.",
    "measure": "Measure the energy of a command, or of this machine.",
    "windows": "List the energy of the windows of a recording.",
    "watch": "Show the power of each device, live.",
    "wattmeter": "Find the interval and the delay of a wattmeter that prints watts.",
    "power-limit": "Show or set the power limit of a GPU.",
    "explain": "Estimate what a model costs on each target of a database.",
    "query": "Select rows of databases by operator, shape, dtype, target and more.",
    "sql": "Answer a SELECT of SQL from databases.",
    "diff": "Test what changed between two databases.",
    "export": "Write a database as CSV or SQL, or a model's time for speedscope or Perfetto.",
    "merge": "Merge databases of several machines or days.",
    "publish": "Write databases to a folder for Hugging Face or Zenodo.",
    "import": "Convert published measurements to a database.",
    "completion": "Print a script for shell completion.",
}
INTERRUPTED = 130
INCOMPLETE = 3
"""Exit code of a result that is incomplete or shows a change."""
UNDECIDED = 4
"""Exit code of `opcost diff` if measurements cannot decide whether something changed."""


class _Commands(click.Group):
    """Imports commands on demand, because importing PyTorch and pandas takes seconds."""

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
        try:
            with reported():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            raise SystemExit(INTERRUPTED) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(opcost.__version__, prog_name="opcost")
def main() -> None:
    """Time and energy of neural networks, by operator and by module.

    opcost run MODEL measures, by a Snakemake workflow; the other commands query what is measured.
    Each has its own help: opcost run --help. For shell completion: opcost completion --help.

    Exit codes: 0 success; 1 error; 2 usage error; 3 the result is incomplete or shows a change; 4
    opcost diff cannot decide whether something changed.
    """
