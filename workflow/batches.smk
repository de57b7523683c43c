# On a cluster: which measurements share one job of the cluster, and so one start. The profile says
# how many may (`group-components`).
#
# Snakemake's own choice changes when the checkpoint changes the DAG, and then jobs run twice
# (snakemake#1628); here the batch of a measurement is settled once. And the Snakemake that such a
# job starts would start another for each member; here they are one group again: one start does.

import dataclasses
from functools import cache

NO_LIMIT = 1_000_000

if workflow.remote_exec:
    workflow.global_resources["measurement"] = 1


def batch(kind, names):
    """The group of a measurement, as a function of its wildcards: None on a single machine.

    `names()` are all that the folder of that kind may hold; what is missing comes first.
    """

    @cache
    def places(target):
        def order(name):
            return (FOLDERS[target] / kind / f"{name}.parquet").exists(), name

        return {name: place for place, name in enumerate(sorted(names(), key=order))}

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
        identity = f"{kind}_{wildcards.target}_{places(wildcards.target)[name] // size}"
        workflow.parent_groupids[identity] = kind
        return identity

    return group
