"""`opcost export`."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from opcost.commands import explain
from opcost.commands.parameters import Database, Model
from opcost.costs.call_graph import write_graph
from opcost.costs.explanation import Explanation
from opcost.costs.explanation import explain as explained_on
from opcost.costs.model_argument import config_path, find_model, run_command
from opcost.costs.trace import write_trace
from opcost.databases.database import default_databases
from opcost.errors import OpcostError
from opcost.files import check_output
from opcost.queries.export import export
from opcost.queries.feature_table import export_features
from opcost.study import ExtractionSettings
from opcost.terminal import show
from opcost.text import counted, seconds, some
from opcost.tuples.containment import tuples_of

_OF_A_MODEL = ("inputs", "batch_size", "arguments", "dtype", "channels_last")
_OF_A_TRACE = (*_OF_A_MODEL, "databases", "targets", "timeout")
_OPTIONS = [each for each in explain.command.params if each.name in _OF_A_TRACE]
_MISSING = 3
_OF_MODELS = {
    ".dot": (write_graph, "To draw them: dot -Tsvg -O {}"),
    ".graph.json": (write_graph, "Each node has the `id` of the one that it is `inside`"),
    ".speedscope.json": (write_trace, "To look at them, open {} at https://www.speedscope.app"),
    ".json": (write_trace, "To look at them, open {} at https://ui.perfetto.dev"),
}
"""Suffix -> what writes such a file of a model, and how to look at it."""


@click.command()
@click.argument("source", type=Model())
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--features",
    is_flag=True,
    help="Write a table to train predictors on: .csv or .parquet, with sizes as columns.",
)
@click.pass_context
def command(
    context: click.Context, /, source: str, output: Path, features: bool, **of_a_trace: Any
) -> None:
    """Write a database as CSV, SQLite or DuckDB, or the estimate of a model as a trace or graph, by
    the suffix of OUTPUT.

    With .csv, .sqlite, .db (SQLite) or .duckdb, SOURCE is a database. Table "operators" has the
    rows, table "column_descriptions" the meanings of the columns. CSV and SQLite have no lists: raw
    values and flags are JSON text.

    \b
    opcost export results/database.parquet operators.csv
    opcost export results/database.parquet operators.sqlite
    sqlite3 operators.sqlite "SELECT description, time_s FROM operators
                              WHERE status = 'ok' ORDER BY time_s DESC LIMIT 10"

    \b
    opcost export results/database.parquet features.csv --features

    \b
    opcost export results/database.parquet operators.duckdb
    duckdb operators.duckdb "SELECT operator, count(*) AS tuples, median(flops / time_s) AS speed
                             FROM operators WHERE status = 'ok' GROUP BY ALL ORDER BY tuples DESC"
    duckdb operators.duckdb "SELECT unnest(flags) AS flag, count(*) FROM operators GROUP BY ALL"

    With .speedscope.json (for https://www.speedscope.app) or another .json (for
    https://ui.perfetto.dev), SOURCE is a model as opcost explain takes it. The trace has its calls
    in order, in their modules, each as long as it is estimated to take on one target, with call
    overhead; on a GPU, the wait for the host comes last. The options are those of opcost explain,
    and only for a trace.

    \b
    opcost export resnet50 resnet50.speedscope.json --input 32x3x224x224 --target h100
    opcost export config/models/resnet34_56.yaml trace.json

    With .dot (of Graphviz) or .graph.json, a graph has the modules and operators of the model, each
    inside the module that calls it, with calls, time and energy; it has no data flow.

    \b
    opcost export resnet50 resnet50.dot --input 32x3x224x224 --target h100
    """
    if output.name.endswith(tuple(_OF_MODELS)) and not features:
        _trace(source, output, **of_a_trace)
        return
    for option in _OPTIONS:
        if context.get_parameter_source(str(option.name)) != ParameterSource.DEFAULT:
            raise click.UsageError(f"{option.opts[0]} is for a trace or graph, in .json or .dot")
    write = export_features if features else export
    show(f"{write(Database().convert(source, None, context), output)} rows in {output}")


command.params += _OPTIONS


def _trace(
    model: str,
    output: Path,
    inputs: tuple[str, ...],
    batch_size: int | None,
    arguments: tuple[str, ...],
    dtype: str | None,
    channels_last: bool,
    databases: tuple[Path, ...],
    targets: tuple[str, ...],
    timeout: int,
) -> None:
    paths = databases or default_databases()
    check_output(output, [*paths, *filter(None, [config_path(model)])])
    options = explain.options_of(inputs, batch_size, arguments, dtype, channels_last)
    tuples = tuples_of(*find_model(model, options), ExtractionSettings(timeout))
    if tuples.refusal is not None:
        raise OpcostError(f"{model}: {tuples.refusal}")
    chosen = _complete_one(explained_on(tuples, paths, targets), model)
    write, look = next(each for end, each in _OF_MODELS.items() if output.name.endswith(end))
    write(chosen, output)
    time = chosen.estimate.time
    assert time is not None
    calls = counted(len(chosen.estimate.model.calls), "call")
    show(
        f"{calls} of {tuples.model} in {output}, estimated to take {seconds(time.value)} on "
        f"{chosen.target}. {look.format(shlex.quote(str(output)))}"
    )


def _complete_one(found: Sequence["Explanation"], model: str) -> "Explanation":
    """The only target that has a time of the model.

    Raises OpcostError with the targets if several have one, and if none has, with what is missing
    and the command that measures it.
    """
    complete = [each for each in found if each.is_complete]
    if len(complete) == 1:
        return complete[0]
    if complete:
        named = [f"--target {shlex.quote(each.conditions_id or each.target)}" for each in complete]
        if len({*named}) < len(named):
            named = [f"--database {shlex.quote(str(each.database))}" for each in complete]
        raise OpcostError(f"the file is of one target: choose {' or '.join(named)}")
    nearest = max(found, key=lambda each: len(each.estimate.measured))
    said = f"{model} has no time on target {nearest.target}: {nearest.estimate.time_reason}"
    definition = nearest.estimate.model.definition
    if nearest.missing and definition is not None:
        missing = [str(term.record.operator_tuple) for term in nearest.missing]
        said += (
            f": {some(missing, _MISSING)}. To measure what is missing on the machine of "
            f"{nearest.target}: {run_command(definition, model)}"
        )
    raise OpcostError(said)
