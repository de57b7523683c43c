"""Rule report: one page of HTML about all results."""

from pathlib import Path

from opcost.errors import reported
from opcost.report.page import write_report
from opcost.report.results import Results

with reported(snakemake.log[0]):
    paths = {name: Path(path) for name, path in snakemake.input.items()}
    write_report(Results.read(**paths), Path(snakemake.output[0]))
