"""Rule report: an HTML page about all results of the study, and a picture of them."""

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from opcost.databases.database import asked_for
from opcost.errors import reported
from opcost.report.page import write_report
from opcost.report.picture import draw
from opcost.report.results import FILES, Results
from opcost.studies import Shown
from opcost.tuples.manifest import collect, to_benchmark
from opcost.tuples.model_tuples import read_extractions

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

files, outputs, params = snakemake.input, snakemake.output, snakemake.params
with reported(snakemake.log[0]):
    results = Results.read({name: Path(files[name]) for name in FILES})
    shown = Shown.from_json(params.shown)
    models = read_extractions(map(Path, shown.extractions.values()))
    calls = chain.from_iterable(shown.calls_on(models).values())
    tuple_ids = to_benchmark(collect(calls, params.operators))
    study = asked_for(results.database, shown.conditions, tuple_ids)
    write_report(replace(results, database=study), Path(outputs.page))
    draw(Path(outputs.figure), results.comparison, results.shares)
