"""Rule collect: the unique operator tuples over all models."""

from pathlib import Path

from opcost.errors import reported
from opcost.manifest import collect, read_model_tuples, refusals, write_manifest

with reported(snakemake.log[0]):
    models = [read_model_tuples(Path(path)) for path in snakemake.input.tuples]
    manifest = collect(models, snakemake.params.operators)
    write_manifest(Path(snakemake.output[0]), manifest, refusals(models))
