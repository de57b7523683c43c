# Snakemake's own work that grows with the jobs of a study and is of no use here.

import atexit
import gc

from snakemake.io import is_flagged
from snakemake.jobs import Job

# Jobs live to the end. Python would look through all of them for garbage again and again while they
# are made, and would free them one by one before it exits.
gc.set_threshold(100_000, 20, 20)
atexit.register(gc.freeze)


def start_no_timers():
    """Snakemake limits how many jobs it starts in a time, and for that sets a timer after each job,
    which sets the next when it fires: thousands of them take most of a core beside a measurement,
    and at the end it waits for the last. Nothing needs a limit where jobs run one by one."""
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None


def look_for_no_pipes():
    """For each input of a job, Snakemake goes through all jobs that make one, to learn whether it
    comes through a pipe or from a service: for the database, the square of the study's size."""
    outputs = [file for rule in workflow.rules for file in rule.output]
    if not any(is_flagged(file, kind) for file in outputs for kind in ("pipe", "service")):
        Job.is_pipe_or_service_input = lambda job, path: False
