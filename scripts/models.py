"""Rule models: the table of each model's operators and parameters."""

import gc
from pathlib import Path
from typing import TYPE_CHECKING

from opcost.arrow import skip_pandas_import
from opcost.errors import reported
from opcost.files import replacing
from opcost.rows import records, schemas
from opcost.terminal import announce
from opcost.tuples.manifest import collect, to_benchmark
from opcost.tuples.model_table import as_text, rows_of
from opcost.tuples.model_tuples import read_extractions

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

skip_pandas_import()
gc.disable()  # all objects are used to the end
outputs = snakemake.output
with reported(snakemake.log[0]):
    every = read_extractions(map(Path, snakemake.params.models))
    models = [model for model in every if not model.is_operator]
    rows = rows_of(models)
    records.write_with_csv(Path(outputs.table), schemas.EXTRACTION, rows)
    text = as_text(rows, len(to_benchmark(collect(models, None))))
    with replacing(Path(outputs.text)) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    if rows:
        announce(text.partition("\n")[0])
