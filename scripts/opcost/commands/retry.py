"""`opcost retry`."""

from contextlib import closing
from pathlib import Path

import click

from opcost.commands import INCOMPLETE
from opcost.commands.run import budget, budgeted, is_measured, verbosity
from opcost.errors import OpcostError
from opcost.results_folder import RESULTS
from opcost.run_lock import RunLock
from opcost.runs.forgetting import check_flags, forget
from opcost.runs.request import asked_again, narrowed
from opcost.studies import remembered
from opcost.terminal import show

_NO_BUDGET = (
    "A run of these models had a budget of measuring time, which does not hold here: what it left "
    "out is measured, too. --max-device-time gives a budget."
)


@click.command()
@click.option(
    "--flag",
    "flags",
    multiple=True,
    help="Also forget the rows with this flag, such as disturbed. Can be repeated.",
)
@budgeted
@verbosity
def command(flags: tuple[str, ...], max_device_time: float | None, verbose: bool) -> None:
    """Delete failed measurements, and measure them again.

    With --flag, flagged ones, too: of all runs in this folder, on its targets as they are now. No
    other measurement is deleted. What else is missing for their models, as beyond the budget of a
    run, is measured, too, unless --max-device-time ends it.

    \b
    opcost retry
    opcost retry --flag disturbed
    """
    check_flags(flags)
    forgotten: set[Path] = set()
    complete = True
    for earlier in reversed(remembered(RESULTS)):
        try:
            request = asked_again(earlier.asked, budget(max_device_time))
        except OpcostError as error:
            show(f"left out, as it can no longer be measured: {error}", err=True)
            continue
        lost: set[str] = set()
        with closing(RunLock()) as lock:
            lock.hold("opcost retry")
            for path, reason, models in forget(request.study, flags, forgotten):
                show(f"forgetting {path}: {reason}")
                lost.update(models)
        if lost:
            had_budget = earlier.asked.get("max_device_time_s") is not None
            if had_budget and request.study.max_device_time_s is None:
                show(_NO_BUDGET, err=True)
            complete &= is_measured(narrowed(request, lost), verbose)
    if not forgotten:
        show("There is nothing to measure again.")
    if not complete:
        raise SystemExit(INCOMPLETE)
