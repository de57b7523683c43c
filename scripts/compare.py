"""Rule compare: sums over operators against whole models."""

import gc
from pathlib import Path

from opcost.arrow import leave_pandas_out
from opcost.costs.comparison import compare_study
from opcost.costs.estimate import OPERATOR_COLUMNS
from opcost.costs.figure import draw
from opcost.costs.summary import summarise
from opcost.errors import reported
from opcost.files import replacing
from opcost.rows import records, schemas
from opcost.tuples.manifest import read_manifest
from opcost.tuples.model_tuples import read_extractions, refusals

files, outputs = snakemake.input, snakemake.output
leave_pandas_out()
gc.disable()  # what this makes is of use until it ends
with reported(snakemake.log[0]):
    models = read_extractions(map(Path, files.tuples))
    comparison, shares, modules = compare_study(
        models,
        records.read(Path(files.database), schemas.DATABASE, OPERATOR_COLUMNS).to_pylist(),
        records.read_all(
            map(Path, [*files.models, *files.models_again]), schemas.MODEL
        ).to_pylist(),
        read_manifest(Path(files.manifest)),
    )
    records.write_with_csv(Path(outputs.comparison), schemas.COMPARISON, comparison)
    records.write_with_csv(Path(outputs.shares), schemas.SHARES, shares)
    records.write_with_csv(Path(outputs.modules), schemas.MODULES, modules)
    summary = summarise(comparison, shares, refusals(models))
    with replacing(Path(outputs.summary)) as temporary:
        temporary.write_text(summary + "\n", encoding="utf-8")
    draw(Path(outputs.figure), comparison, shares)
