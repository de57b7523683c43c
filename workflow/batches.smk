# On a cluster, a batch of measurements shares one job, and one start of Python. The profile sets
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


def batch(names):
    """The group of a measurement, as a function of its wildcards: None on a single machine.

    `names()` are those of all files of the kind; missing ones come first. Traces are a series, too.
    """

    @cache
    def positions(folder, series):
        def order(name):
            return measurement_in(folder, series, name).exists(), name

        return {name: position for position, name in enumerate(sorted(names(), key=order))}

    def group(wildcards):
        if workflow.local_exec:
            return None
        folder = target_folder(wildcards.target, wildcards.conditions)
        series = wildcards.get("series", CALLS)
        if workflow.remote_exec:
            settings = workflow.group_settings
            workflow.group_settings = dataclasses.replace(
                settings, group_components={series: NO_LIMIT}
            )
            return series
        kind = CALLS if series == CALLS else series_named(series).kind
        size = workflow.group_settings.group_components.get(kind, 1)
        name = wildcards.get("tuple_id") or wildcards.model
        identity = f"{series}_{wildcards.target}_{positions(folder, series)[name] // size}"
        workflow.parent_groupids[identity] = series
        return identity

    return group
