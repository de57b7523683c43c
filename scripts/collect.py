"""Rule collect: the unique operator tuples over all models."""

from pathlib import Path
from typing import TYPE_CHECKING

from opcost.errors import reported
from opcost.fingerprint import noted
from opcost.tuples.manifest import collect, write_manifest
from opcost.tuples.model_tuples import named, read_extractions, refusals
from opcost.tuples.recordings import calls_on

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

files, outputs, params = snakemake.input, snakemake.output, snakemake.params
with reported(snakemake.log[0]), noted(outputs.note, params.asked, files, outputs):
    models = read_extractions(map(Path, files.tuples))
    on_targets = [
        model
        for target, folder in params.folders.items()
        for model in calls_on(folder, named(models, params.models_on[target]))
    ]
    manifest = collect(on_targets, params.operators)
    write_manifest(Path(outputs.manifest), manifest, refusals(models))
