"""Rule database: every operator measurement of the study in one file."""

from pathlib import Path

from opcost import records
from opcost.errors import reported

with reported(snakemake.log[0]):
    rows = records.read_all([Path(path) for path in snakemake.input], records.OPERATOR)
    records.write_table(Path(snakemake.output[0]), records.OPERATOR, rows)
