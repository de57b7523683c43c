"""Rule database: every operator measurement in the results folder, in one file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from opcost.arrow import skip_pandas_import
from opcost.costs.known_ratios import ratios_of
from opcost.databases.aggregation import write_database
from opcost.databases.measured import find_measured
from opcost.errors import reported
from opcost.results_folder import RESULTS

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

skip_pandas_import()
with reported(snakemake.log[0]):
    measured = find_measured(RESULTS, [Path(folder) for folder in snakemake.params.folders])
    files = snakemake.input
    asked = map(Path, [*files.operators, *files.models, *files.overheads, *files.devices])
    database = Path(snakemake.output[0])
    for text in write_database(measured, database, set(asked), ratios_of):
        print(f"opcost: left out of {database}: {text}", file=sys.stderr)
