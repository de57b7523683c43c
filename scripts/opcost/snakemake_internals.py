"""All undocumented parts of Snakemake that opcost uses, in two tables.

`check` stops a run with an explanation if Snakemake lacks one of them. Otherwise, some changes of
Snakemake would silently make runs slow, and others would start jobs twice. To adopt a newer
Snakemake, set `NEWEST` and the pin in requirements.txt, and run the tests.

Names begin at the object `workflow`, or in a module (`module:name`).
"""

import sys
import threading
from operator import attrgetter
from pkgutil import resolve_name
from typing import Any, NamedTuple

from packaging.version import parse
from snakemake.common import __version__
from snakemake.exceptions import WorkflowError

OLDEST = "9.21.1"
"""Earlier versions do not notice all changes below a checkpoint."""
NEWEST = "9.27.1"
"""Later versions that differ only in the third number are accepted, too."""

_SLURM = "snakemake_executor_plugin_slurm"


class Change(NamedTuple):
    """A part that opcost replaces or sets."""

    why: str
    upstream: str
    delete_when: str


CHANGED = {
    "scheduler.job_rate_limiter": Change(
        "each job starts a timer, and each timer the next: they take most of a core",
        "snakemake#3744",
        "a timer starts only where the limit of jobs is reached",
    ),
    "scheduler._lock": Change(
        "a signal that arrives while the main thread holds the lock waits for it for ever",
        "not reported",
        "JobScheduler.exit_gracefully takes no lock, or one that its thread may hold",
    ),
    "snakemake.jobs:Job.is_pipe_or_service_input": Change(
        "planning a job takes the square of its inputs",
        "not reported",
        "it no longer looks through all dependencies of a job for each input",
    ),
    f"{_SLURM}:is_query_tool_available": Change(
        "the plugin asks sacct where squeue does not answer, and without accounting waits for ever",
        "not reported (plugin 2.8.0)",
        "the plugin asks only the command of slurm-status-command",
    ),
    "parent_groupids": Change(
        "batches of measurements are settled once: Snakemake groups again after a checkpoint",
        "snakemake#1628",
        "groups outlive a checkpoint",
    ),
    "group_settings": Change(
        "the size of a batch; within its job, all of it is one group",
        "snakemake#1628",
        "groups outlive a checkpoint",
    ),
    "global_resources": Change(
        "the processor and each GPU of the study is a resource",
        "not reported",
        "a workflow can say how much there is of a resource",
    ),
}

READ = {
    "current_basedir": "where the package is",
    "modifier.path_modifier.replace_prefix": "whether another workflow wants its files elsewhere",
    "config_settings.config": "which targets the command line names",
    "config_settings.configfiles": "which targets each configuration names",
    "deployment_settings.deployment_method": "whether jobs run in conda environments",
    "resource_settings.cores": "how many cores a measurement of the processor reserves",
    "resource_settings.nodes": "whether this is a cluster",
    "output_settings.quiet": "whether the terminal shows Snakemake's own lines",
    "executor_settings": "whether Slurm is asked by squeue",
    "is_main_process": "jobs start Snakemake, too",
    "dryrun": "a dry run loads no driver",
    "local_exec": "whether jobs run on this machine",
    "remote_exec": "whether this is a job of a cluster",
    "rules": "whether any output is a pipe or a service",
    "snakemake.io:is_flagged": "the same",
    "snakemake.logging:get_event": "what happens: the text differs between versions",
}

_ONCE_STARTED = ("scheduler.", "executor_settings", _SLURM)


def check_version() -> None:
    """Raise WorkflowError unless opcost is tested with this Snakemake."""
    found = parse(__version__)
    if found < parse(OLDEST) or found.release[:2] > parse(NEWEST).release[:2]:
        raise WorkflowError(f"Snakemake {__version__} is unknown. {_remedy()}")


def check(workflow: Any, started: bool) -> None:
    """Raise WorkflowError, which names the missing part, unless Snakemake has all in the tables.

    Some of them exist only before, the others only after a run has started.
    """
    for name, use in {**CHANGED, **READ}.items():
        looked_for = name.startswith(_ONCE_STARTED) == started
        unused = name.startswith(_SLURM) and _SLURM not in sys.modules
        if looked_for and not unused and not _exists(workflow, name):
            why = use.why if isinstance(use, Change) else use
            full_name = name.replace(":", ".") if ":" in name else f"workflow.{name}"
            raise WorkflowError(
                f"opcost needs {full_name} ({why}), which Snakemake {__version__} does not have. "
                f"{_remedy()}"
            )


def refuse_prefix(workflow: Any) -> None:
    """Raise WorkflowError in a module with a prefix: opcost would not find its files."""
    modified = workflow.modifier.path_modifier.replace_prefix
    for path in ("results/database.parquet", "logs/models.log"):
        if modified(path) != path:
            raise WorkflowError(
                f"the module statement puts {path} of opcost to {modified(path)}, where opcost "
                "does not find it: leave out `prefix` and `replace_prefix`; for results in another "
                "folder, run Snakemake with --directory FOLDER"
            )


def _exists(workflow: Any, name: str) -> bool:
    try:
        resolve_name(name) if ":" in name else attrgetter(name)(workflow)
    except (AttributeError, ImportError):
        return False
    return True


def _remedy() -> str:
    return (
        f"opcost works with {OLDEST} to {NEWEST}: pip install snakemake=={NEWEST}. To adopt "
        "another, see scripts/opcost/snakemake_internals.py"
    )


def disable_rate_limit_timers(workflow: Any) -> None:
    """Disable the limit of job starts per time, which is not needed where jobs run one by one."""
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None


def end_at_any_signal(workflow: Any) -> None:
    """Make the scheduler's lock reentrant: the handler of SIGTERM takes it in the main thread."""
    workflow.scheduler._lock = threading.RLock()


def skip_pipe_lookup(workflow: Any) -> None:
    """Answer at once that no input is a pipe or from a service, if no rule has such an output."""
    from snakemake.io import is_flagged
    from snakemake.jobs import Job

    outputs = [file for rule in workflow.rules for file in rule.output]
    if not any(is_flagged(file, kind) for file in outputs for kind in ("pipe", "service")):
        Job.is_pipe_or_service_input = lambda job, path: False


def poll_squeue_only(workflow: Any) -> None:
    """Ask squeue until it answers, if the profile says squeue."""
    plugin = sys.modules.get(_SLURM)
    if plugin and getattr(workflow.executor_settings, "status_command", None) == "squeue":
        vars(plugin)["is_query_tool_available"] = lambda tool: tool == "squeue"
