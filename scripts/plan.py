"""Rule plan: the remaining measurements, with their time and memory; measures nothing."""

from typing import TYPE_CHECKING

from opcost.addresses import Addresses
from opcost.devices.device import open_device
from opcost.errors import reported
from opcost.planning.target_plan import describe_plans
from opcost.study import load_study

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with reported(snakemake.log[0]):
    addresses = Addresses(load_study(snakemake.config), **snakemake.params.addressed)
    print(describe_plans(addresses, open_device))
