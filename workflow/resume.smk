# One run at a time in a folder. The same command resumes a run that was killed.

import atexit
import sys

from opcost.files import clamp_future_times, version_of
from opcost.results_folder import RESULTS, check_results
from opcost.run_lock import LOCK, RunLock

if workflow.is_main_process:
    checked(check_results)
    clamp_future_times(RESULTS)

LOCK_BEFORE = version_of(LOCK)  # changes as runs begin and end
RUN_LOCK = RunLock()
atexit.register(RUN_LOCK.close)


def hold_folder():
    lock_now = version_of(LOCK)
    killed = checked(RUN_LOCK.hold, "snakemake")
    if lock_now != LOCK_BEFORE:
        raise WorkflowError("another run wrote results since this one read them: run again")
    if killed:
        print(f"Resuming: {killed} was killed.", file=sys.stderr)
