"""Rule plan_round: the measurements of a target in a round after the first."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opcost.addresses import Addresses
from opcost.errors import reported
from opcost.planning.rounds import plan_target_round, with_rest_of_budget, write_round
from opcost.planning.target_plan import plan_target
from opcost.study import load_study
from opcost.terminal import announce
from opcost.text import counted, duration

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

params = snakemake.params
with reported(snakemake.log[0]):
    target, number = snakemake.wildcards.target, int(snakemake.wildcards.round)
    addresses = Addresses(load_study(snakemake.config), **params.addressed)
    left = with_rest_of_budget(addresses, target, params.began_s)
    planned = plan_target_round(left, target, number, plan_target(left, target))
    write_round(Path(snakemake.output[0]), replace(planned, anew=params.anew))
    if planned.new:
        what = counted(len(planned.new), "measurement")
        announce(f"[round {number}] {target}: {what}, about {duration(planned.needed_s)}")
