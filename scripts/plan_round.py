"""Rule plan_round: what a target measures in a round after the first."""

from pathlib import Path
from typing import TYPE_CHECKING

from opcost.errors import reported
from opcost.fingerprint import noted
from opcost.planning.target_plan import expected_widths, plan_target
from opcost.planning.target_rounds import plan_target_round, with_rest_of_budget, write_round
from opcost.results_folder import RESULTS
from opcost.runs.requested import requested
from opcost.study import load_study
from opcost.terminal import announce
from opcost.text import counted, duration

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

outputs, wildcards, params = snakemake.output, snakemake.wildcards, snakemake.params
with reported(snakemake.log[0]), noted(outputs.note, params.asked, snakemake.input, outputs):
    study = requested(load_study(snakemake.config)).to_measure(wildcards.target)
    study = with_rest_of_budget(study, wildcards.target, RESULTS, params.began_s)
    number = int(wildcards.round)
    first = plan_target(study, wildcards.target, RESULTS)
    planned = plan_target_round(study, wildcards.target, number, RESULTS, first)
    write_round(Path(outputs.plan), planned)
    if planned.new:
        what = counted(len(planned.new), "measurement")
        announce(
            f"[round {number}] {wildcards.target}: {what}, about {duration(planned.needed_s)}"
            f"{expected_widths(planned, study.precision.models)}"
        )
