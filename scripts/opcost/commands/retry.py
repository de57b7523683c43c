"""`opcost retry`."""

from contextlib import closing
from pathlib import Path

import click

from opcost.commands import INCOMPLETE
from opcost.commands.run import budget, budgeted, is_answered, verbosity
from opcost.errors import OpcostError
from opcost.results_folder import RESULTS
from opcost.run_lock import RunLock
from opcost.runs.forgetting import check_flags, forget, put_back
from opcost.runs.request import asked_again, narrowed
from opcost.runs.workflow import run_workflow
from opcost.studies import remembered
from opcost.terminal import show
from opcost.text import counted

_NO_TIME_S = 1e-3
"""A budget in which tables are made, and nothing is measured."""

_NO_BUDGET = (
    "A run of these models had a budget of measuring time, which does not hold here: what it left "
    "out is measured, too. --max-device-time gives a budget."
)


@click.command()
@click.option(
    "--flag",
    "flags",
    multiple=True,
    help="Also measure the rows with this flag again, such as disturbed. Can be repeated.",
)
@budgeted
@verbosity
def command(flags: tuple[str, ...], max_device_time: float | None, verbose: bool) -> None:
    """Measure again what failed.

    With --flag, flagged rows, too: of all runs in this folder, on its targets as they are now. Each
    is replaced once it has been measured again. What else is missing for their models, as beyond
    the budget of a run, is measured, too, unless --max-device-time ends it.

    \b
    opcost retry
    opcost retry --flag disturbed
    """
    check_flags(flags)
    with closing(RunLock()) as lock:  # another retry may be at work
        lock.hold("opcost retry")
        put_back(RESULTS)
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
                show(f"to be measured again: {path}: {reason}")
                lost.update(models)
        if lost:
            had_budget = earlier.asked.get("max_device_time_s") is not None
            if had_budget and request.study.max_device_time_s is None:
                show(_NO_BUDGET, err=True)
            found = narrowed(request, lost)
            try:
                ended = run_workflow(found.settings, verbose=verbose)
            finally:
                kept = put_back(RESULTS)
            if kept and not ended.code:
                show(f"{counted(kept, 'measurement')} kept as before, beyond the budget.", err=True)
                ended = run_workflow({**found.settings, **budget(_NO_TIME_S)}, verbose=verbose)
            if ended.code:
                raise SystemExit(ended.code)
            complete &= is_answered(found)
    if not forgotten:
        show("There is nothing to measure again.")
    if not complete:
        raise SystemExit(INCOMPLETE)
