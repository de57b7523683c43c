# The same command resumes a run that was killed. Snakemake's lock outlives a SIGKILL and would ask
# for --unlock. Every run here shares a lock of the kernel's, which ends with its process: who gets
# that one exclusively is alone, and any lock of Snakemake's is left behind by the dead.

import fcntl
import sys

snakemake_state = Path(".snakemake")


def forget_locks_of_the_dead():
    alive = open(snakemake_state / "opcost.alive", "w")
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
