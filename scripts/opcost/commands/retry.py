"""`opcost retry`."""

import click

from opcost.commands.run import measure, verbosity
from opcost.terminal import show


@click.command()
@click.option(
    "--flag",
    "flags",
    multiple=True,
    help="Also forget the rows with this flag, such as disturbed. Can be repeated.",
)
@verbosity
def command(flags: tuple[str, ...], verbose: bool) -> None:
    """Forget the measurements that failed, and measure them again.

    With --flag, also those with a flag, of the models and targets in this folder's study and runs.
    No other measurement is lost.

    \b
    opcost retry
    opcost retry --flag disturbed
    """
    from contextlib import closing
    from itertools import chain

    from opcost.run_lock import RunLock
    from opcost.runs.forgetting import forget_failures, forget_flagged
    from opcost.runs.study_file import read_studies

    studies = read_studies()
    study, only = studies.study(), studies.measured()
    with closing(RunLock()) as lock:
        lock.hold("opcost retry")
        flagged = forget_flagged(study, flags) if flags else ()
        for path, reason in chain(flagged, forget_failures()):
            show(f"forgetting {path}: {reason}")
    measure(only, verbose=verbose)
