"""`opcost report`."""

import click

from opcost.commands.run import verbosity
from opcost.terminal import show


@click.command()
@verbosity
def command(verbose: bool) -> None:
    """Make the tables and the report from what is measured; measure nothing.

    They contain the models and targets of this folder's study and runs that are measured.

    \b
    opcost report
    """
    from opcost.results_folder import REPORT
    from opcost.runs.left_out import left_out
    from opcost.runs.study_file import read_studies
    from opcost.runs.workflow import run_workflow

    studies = read_studies()
    studies.check_any()
    if code := run_workflow({}, verbose=verbose).code:
        raise SystemExit(code)
    for line in left_out(studies.study({})):
        show(line, err=True)
    show(f"The report: {REPORT.resolve()}")
