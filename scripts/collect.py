"""Rule collect: the file of a study, and the unique operator tuples of all its models."""

from pathlib import Path
from typing import TYPE_CHECKING

from opcost.addresses import Addresses
from opcost.errors import reported
from opcost.studies import remember
from opcost.study import load_study
from opcost.tuples.manifest import collect, write_manifest
from opcost.tuples.model_tuples import read_extractions, refusals
from opcost.tuples.traces import calls_on

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with reported(snakemake.log[0]):
    addresses = Addresses(load_study(snakemake.config), **snakemake.params.addressed)
    models = read_extractions(map(Path, snakemake.input.tuples))
    folders = addresses.folders.values()
    on_targets = [model for folder in folders for model in calls_on(folder, models)]
    manifest = collect(on_targets, addresses.study.operators)
    write_manifest(Path(snakemake.output.manifest), manifest, refusals(models))
    remember(addresses, snakemake.config)
