"""Rule collect: the unique operator tuples over all models."""

from pathlib import Path

from opcost.errors import reported
from opcost.tuples.manifest import collect, write_manifest
from opcost.tuples.model_tuples import read_extractions, refusals

with reported(snakemake.log[0]):
    models = read_extractions(map(Path, snakemake.input.tuples))
    manifest = collect(models, snakemake.params.operators)
    write_manifest(Path(snakemake.output[0]), manifest, refusals(models))
