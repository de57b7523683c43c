# One run at a time in a folder. The same command resumes a run that was killed.

import atexit
import sys

from opcost.run_lock import RunLock

RUN_LOCK = RunLock()
atexit.register(RUN_LOCK.close)


def hold_folder():
    killed = checked(RUN_LOCK.hold, "snakemake")
    if killed:
        print(f"Resuming: {killed} was killed.", file=sys.stderr)
