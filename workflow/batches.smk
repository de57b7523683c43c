# On a cluster, the measurements of a batch share one job, and one start of Python. The profile sets
# the size of batches (`group-components`).
#
# Snakemake forms its groups again when the checkpoint changes the DAG, and runs jobs twice
# (snakemake#1628); here the batch of a measurement is determined once. Within its job, Snakemake
# would start another Snakemake for each member; one group of all members needs one.

import dataclasses
from functools import cache

NO_LIMIT = 1_000_000

if workflow.remote_exec:
    workflow.global_resources["measurement"] = 1


def batch(kind, names):
    """The group of a measurement, as a function of its wildcards: None on a single machine.

    `names()` are all measurements of the kind; missing ones come first.
    """

    @cache
    def positions(target):
        def order(name):
            return (FOLDERS[target] / kind / f"{name}.parquet").exists(), name

        return {name: position for position, name in enumerate(sorted(names(), key=order))}

    def group(wildcards):
        if workflow.local_exec:
            return None
        if workflow.remote_exec:
            settings = workflow.group_settings
            workflow.group_settings = dataclasses.replace(
                settings, group_components={kind: NO_LIMIT}
            )
            return kind
        size = workflow.group_settings.group_components.get(kind, 1)
        name = wildcards.get("tuple_id") or wildcards.get("model")
        identity = f"{kind}_{wildcards.target}_{positions(wildcards.target)[name] // size}"
        workflow.parent_groupids[identity] = kind
        return identity

    return group
