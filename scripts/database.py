"""Rule database: every operator measurement of the study in one file."""

from pathlib import Path

from opcost import records, schemas
from opcost.errors import reported

with reported(snakemake.log[0]):
    rows = records.read_all([Path(path) for path in snakemake.input], schemas.OPERATOR)
    records.write_table(Path(snakemake.output[0]), schemas.OPERATOR, rows)
