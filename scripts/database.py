"""Rule database: every operator measurement in the folder of results, in one file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from opcost.arrow import skip_pandas_import
from opcost.costs.known_methods import methods_of
from opcost.databases.aggregation import write_database
from opcost.databases.measured import find_measured
from opcost.errors import reported
from opcost.fingerprint import noted
from opcost.results_folder import RESULTS

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

outputs = snakemake.output
skip_pandas_import()
with reported(snakemake.log[0]):
    measured = find_measured(RESULTS)
    with noted(outputs.note, snakemake.params.asked, measured.files, outputs):
        database, asked = Path(outputs.database), set(map(Path, snakemake.input))
        for text in write_database(measured, database, asked, methods_of):
            print(f"opcost: left out of {database}: {text}", file=sys.stderr)
