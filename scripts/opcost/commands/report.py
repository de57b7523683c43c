"""`opcost report`."""

from pathlib import Path

import click

from opcost.commands.parameters import Database
from opcost.commands.run import verbosity
from opcost.files import check_output
from opcost.report.page import write_report
from opcost.report.results import Results
from opcost.results_folder import REPORT
from opcost.runs.request import nothing
from opcost.runs.workflow import run_workflow
from opcost.terminal import show


@click.command()
@click.argument("database", type=Database(), required=False)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="The page to write, of a DATABASE. Default: report.html.",
)
@verbosity
def command(database: Path | None, output: Path | None, verbose: bool) -> None:
    """Make the tables and the report from what is measured; measure nothing.

    With a DATABASE, merged or not, or the name of reference data, make a page of its rows alone.

    \b
    opcost report
    opcost report h100 --output h100.html
    """
    if database is not None:
        output = output or Path(REPORT.name)
        check_output(output, [database])
        write_report(Results.of_database(database), output)
    elif output is not None:
        raise click.UsageError(f"--output needs a DATABASE: without one, the page is {REPORT}")
    elif code := run_workflow(nothing().settings, verbose=verbose).code:
        raise SystemExit(code)
    show(f"The report: {(output or REPORT).resolve()}")
