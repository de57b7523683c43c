"""Rule database: every operator measurement of the study in one file."""

from pathlib import Path

from opcost.arrow import leave_pandas_out
from opcost.databases.database import write_database
from opcost.errors import reported

leave_pandas_out()
with reported(snakemake.log[0]):
    write_database(
        [Path(path) for path in snakemake.input.operators],
        Path(snakemake.output[0]),
        [Path(path) for path in snakemake.input.again],
        [Path(path) for path in (*snakemake.input.devices, *snakemake.input.overheads_again)],
    )
