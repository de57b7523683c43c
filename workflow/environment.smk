# The environment of each target is compared with that in which it was measured so far, before
# anything is measured on it. Each job that measures compares, too, and sees more: here no device is
# opened. On a cluster, only a job sees the machine.

import os
import sys
import time

from opcost.environments.advice import advice
from opcost.environments.noticed import is_noted
from opcost.environments.present import changes_here
from opcost.environments.set_aside import set_aside

BEGAN_S = time.time()

MEASURING_RULES = {
    "identify_target",
    "characterize_sensor",
    "benchmark_operator",
    "benchmark_operator_again",
    "benchmark_model",
    "benchmark_model_again",
    "measure_overhead_again",
}


def targets_to_measure_on():
    """By the jobs of this run; after an extraction there may be more of any target."""
    jobs = list(workflow.dag.needrun_jobs())
    if {"extract", "collect"} <= {job.rule.name for job in jobs}:
        return list(STUDY.conditions)
    targets = {job.wildcards.target for job in jobs if job.rule.name in MEASURING_RULES}
    return [target for target in STUDY.conditions if target in targets]


def changed_environments():
    """For the folder of each target that is to be measured on and has changed, how."""
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
    """Stop, or set aside what was measured and start again, as the study says."""
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
    """Once in a run: where jobs come to unlike machines, that would have no end."""
    if STUDY.environment_changes == "set_aside" and not os.environ.get("OPCOST_SET_ASIDE"):
        noted = [folder for folder in FOLDERS.values() if is_noted(folder, BEGAN_S)]
        set_aside_and_start_again(noted)


def set_aside_and_start_again(folders):
    """In this process: what is to be done is another thing then."""
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
