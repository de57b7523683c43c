# The same command resumes a run that was killed. Snakemake's lock outlives a SIGKILL and would ask
# for --unlock. Every run here shares a lock of the kernel's, which ends with its process: who gets
# that one exclusively is alone, and any lock of Snakemake's is left behind by the dead.

import fcntl
import os
import sys

from snakemake.exceptions import WorkflowError

snakemake_state = Path(".snakemake")


def open_own_file(path):
    # Whoever may write to the folder may have put a link there: it is not followed.
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise WorkflowError(
            f"{path} cannot be used ({error.strerror}): delete it and run again"
        ) from None


def forget_locks_of_the_dead():
    alive = open_own_file(snakemake_state / "opcost.alive")
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pass
    else:
        leftovers = list(snakemake_state.glob("locks/*.lock"))
        for leftover in leftovers:
            leftover.unlink()
        if leftovers:
            print("Resuming: the run before this one was killed.", file=sys.stderr)
    fcntl.flock(alive, fcntl.LOCK_SH)
    return alive


# On a cluster, jobs start Snakemake too, on nodes that need not know of each other's locks.
if workflow.is_main_process:
    snakemake_state.mkdir(exist_ok=True)
    alive = forget_locks_of_the_dead()
