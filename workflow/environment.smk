# Before a run measures on a target, its environment is compared with that of earlier measurements.
# Here no device is opened; each measuring job compares the device as well. On a cluster, only jobs
# see the machine.

import os
import sys
import time

from opcost.environments.advice import advice
from opcost.environments.noticed import is_noted
from opcost.environments.present import changes_here
from opcost.environments.set_aside import set_aside

BEGAN_S = time.time()


def targets_to_measure_on():
    """The targets of this run's jobs; all of them if an extraction may add jobs."""
    jobs = list(workflow.dag.needrun_jobs())
    if {"extract", "collect"} <= {job.rule.name for job in jobs}:
        return list(MEASURED)
    targets = {job.wildcards.target for job in jobs if "measurement" in job.rule.resources}
    return [target for target in MEASURED if target in targets]


def changed_environments():
    """The changes of each such target, by its folder."""
    found = {
        FOLDERS[target]: changes_here(
            FOLDERS[target],
            STUDY.conditions[target].target,
            torch=not CONDA,
            machine=workflow.local_exec,
        )
        for target in targets_to_measure_on()
    }
    return {folder: changes for folder, changes in found.items() if changes}


def notice_changed_environments():
    """Stop, or set the measurements aside and start again, as the study is configured."""
    if not workflow.is_main_process:
        return
    try:
        changed = changed_environments()
        if changed and STUDY.environment_changes == "stop":
            raise OpcostError("\n\n".join(advice(*each) for each in changed.items()))
    except OpcostError as error:
        raise WorkflowError(str(error)) from None
    set_aside_and_start_again(changed)


def set_aside_what_jobs_noticed():
    """Once per run: with different machines in a cluster, it would never end."""
    if STUDY.environment_changes == "set_aside" and not os.environ.get("OPCOST_SET_ASIDE"):
        noted = [folder for folder in FOLDERS.values() if is_noted(folder, BEGAN_S)]
        set_aside_and_start_again(noted)


def set_aside_and_start_again(folders):
    """Restart Snakemake in this process: the jobs to run have changed."""
    if not folders or not workflow.is_main_process:
        return
    for folder in folders:
        try:
            print(f"{folder} is now {folder.parent / set_aside(folder.name, folder.parent)}")
        except OpcostError as error:
            raise WorkflowError(str(error)) from None
    elsewhere = any(word == "-d" or word.startswith("--directory") for word in sys.argv)
    if elsewhere or "snakemake" not in Path(sys.argv[0]).parts:
        raise WorkflowError("Run the same command again to measure in the present environment.")
    workflow.persistence.unlock()
    RUN_LOCK.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ.update(OPCOST_SET_ASIDE="yes")
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
