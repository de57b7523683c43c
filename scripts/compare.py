"""Rule compare: estimates from operators beside end-to-end measurements."""

import gc
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from opcost.arrow import skip_pandas_import
from opcost.costs import answers
from opcost.costs.comparison import compare_study
from opcost.costs.estimate import OPERATOR_COLUMNS
from opcost.costs.launches import launch_lines
from opcost.costs.published_text import published_lines
from opcost.costs.requests import request_lines, requests_in
from opcost.costs.summary import details, first_screen
from opcost.costs.sweep_text import operator_lines, sweep_lines
from opcost.costs.sweeps import single_operators, sweep_rows
from opcost.costs.terms import Row
from opcost.databases.aggregation import end_to_end_rows
from opcost.databases.database import asked_for, rows_of
from opcost.databases.model_ratios import read_ratios
from opcost.errors import reported
from opcost.files import replacing
from opcost.models.axes import Sweep
from opcost.models.generation import Generation
from opcost.prediction.predictor import COLUMNS as PREDICTED_FROM
from opcost.rows import records, schemas
from opcost.rows.runs import noise_of
from opcost.runs.answer import ended_by_budget
from opcost.studies import Shown
from opcost.study import load_study
from opcost.terminal import printable_lines
from opcost.tuples.manifest import collect, to_benchmark
from opcost.tuples.model_tuples import read_extractions, refusals

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

outputs, params = snakemake.output, snakemake.params


@cache
def predict_from() -> dict[str, list[Row]]:
    """The rows with a result of each target."""
    every = records.read(path, schemas.DATABASE, [*OPERATOR_COLUMNS, *PREDICTED_FROM])
    rows = asked_for(every, shown.conditions, every["tuple_id"].unique().to_pylist()).to_pylist()
    results = [row for row in rows if row["status"] == "ok"]
    return {name: [r for r in results if r["target"] == name] for name in shown.conditions}


skip_pandas_import()
gc.disable()  # all objects are used to the end
with reported(snakemake.log[0]):
    shown = Shown.from_json(params.shown)
    models = read_extractions(map(Path, shown.extractions.values()))
    on_targets = shown.calls_on(models)
    manifest = collect(chain.from_iterable(on_targets.values()), params.operators)
    path = Path(snakemake.input.database)
    database = records.read(path, schemas.DATABASE, OPERATOR_COLUMNS)
    ratios = read_ratios(path)
    noises = {
        target: noise_of(rows_of(database, target), ratios.get(target, ()))
        for target in shown.conditions
    }
    operators = asked_for(database, shown.conditions, to_benchmark(manifest))
    end_to_end = [
        row | {"target": target}
        for target, paths in shown.end_to_end().items()
        for path in paths
        for row in end_to_end_rows(path, f"delete {path} and run again to measure it again")
    ]
    rows = operators.to_pylist()
    tables = compare_study(
        on_targets, rows, end_to_end, manifest, noises, params.precision, predict_from
    )
    axes = [Sweep(**each) for each in shown.sweeps]
    of_targets = [Sweep(**each) for each in shown.target_sweeps]
    isolated = single_operators(on_targets, operators.to_pylist(), noises)
    sweeps = sweep_rows(axes, of_targets, [*tables.comparison, *isolated], models)
    generations = map(Generation.from_document, shown.generations)
    requests = requests_in(list(generations), tables.comparison)
    of_requests = [each.columns() for each in requests]
    found = answers.all_answers(tables, of_requests, sweeps)
    records.write(Path(outputs.answers), schemas.ANSWERS, found)
    for output, schema, table in (
        (outputs.comparison, schemas.COMPARISON, answers.comparison_rows(tables.comparison)),
        (outputs.shares, schemas.SHARES, tables.shares),
        (outputs.modules, schemas.MODULES, tables.modules),
        (outputs.in_context, schemas.IN_CONTEXT, tables.in_context),
        (outputs.launches, schemas.LAUNCHES, tables.launches),
        (outputs.sweeps, schemas.SWEEPS, sweeps),
        (outputs.requests, schemas.REQUESTS, of_requests),
    ):
        records.write_with_csv(Path(output), schema, table)
    comparison, shares = tables.comparison, tables.shares
    study = load_study(snakemake.config)
    further = [
        sweep_lines(sweeps),
        operator_lines(of_targets, shares),
        request_lines(requests, shares),
        launch_lines(tables.launches),
        published_lines(study.published, comparison),
        shown.others(),
        ended_by_budget(study),
    ]
    refused = refusals(models)
    for output, text in (
        (outputs.summary, first_screen(comparison, shares, refused, further)),
        (outputs.details, details(comparison, shares, tables.in_context)),
    ):
        with replacing(Path(output)) as temporary:
            temporary.write_text(printable_lines(text) + "\n", encoding="utf-8")
