"""Rule plan: what is to be measured, in how much time and memory; measures nothing."""

from typing import TYPE_CHECKING

from opcost.devices.target_device import open_device
from opcost.errors import reported
from opcost.planning.target_plan import describe_plans
from opcost.results_folder import RESULTS
from opcost.runs.requested import requested
from opcost.study import load_study

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with reported(snakemake.log[0]):
    asked = requested(load_study(snakemake.config))
    plans = (
        describe_plans(asked.to_measure(target), RESULTS, open_device) for target in asked.measured
    )
    print("\n\n".join(plans))
