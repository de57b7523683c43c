"""Rule report: one page of HTML about all results of the study, and a picture of them."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opcost.databases.selection import asked_for
from opcost.errors import reported
from opcost.fingerprint import noted
from opcost.report.page import write_report
from opcost.report.picture import draw
from opcost.report.results import FILES, Results
from opcost.tuples.manifest import read_manifest, to_benchmark

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

files, outputs, params = snakemake.input, snakemake.output, snakemake.params
with reported(snakemake.log[0]), noted(outputs.note, params.asked, files, outputs):
    results = Results.read({name: Path(files[name]) for name in FILES})
    tuple_ids = to_benchmark(read_manifest(Path(files.manifest)))
    study = asked_for(results.database, params.conditions, tuple_ids)
    write_report(replace(results, database=study), Path(outputs.page))
    draw(Path(outputs.figure), results.comparison, results.shares)
