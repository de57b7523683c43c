"""`opcost report`."""

import click

from opcost.commands.run import verbosity
from opcost.results_folder import REPORT
from opcost.runs.request import nothing
from opcost.runs.workflow import run_workflow
from opcost.terminal import show


@click.command()
@verbosity
def command(verbose: bool) -> None:
    """Make the tables and the report from what is measured; measure nothing.

    \b
    opcost report
    """
    if code := run_workflow(nothing().settings, verbose=verbose).code:
        raise SystemExit(code)
    show(f"The report: {REPORT.resolve()}")
