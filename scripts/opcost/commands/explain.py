"""`opcost explain`."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from opcost.arrow import skip_pandas_import
from opcost.commands import INCOMPLETE
from opcost.commands.parameters import (
    ARGUMENT,
    CHANNELS_LAST,
    DATABASES,
    INPUT,
    MemorySize,
    Model,
    Number,
)
from opcost.costs.explanation import MOST_PREDICTED, Explanation, explain
from opcost.costs.explanation_text import as_text
from opcost.costs.growth import growth, growth_text
from opcost.costs.memory_use import (
    MemoryUse,
    fit,
    memory_as_text,
    memory_use,
)
from opcost.costs.model_argument import config_path, find_steps, parse_argument, parse_input
from opcost.costs.offload import Offload, offload, offload_memory
from opcost.costs.offload_text import offload_as_text
from opcost.costs.request_explanation import (
    RequestExplanation,
    explain_request,
    request_as_text,
)
from opcost.costs.units import parse_factors, work_lines
from opcost.databases.database import default_databases
from opcost.errors import OpcostError
from opcost.files import check_output
from opcost.models.variants import Options
from opcost.queries.listing import csv_text
from opcost.rows import records, schemas
from opcost.study import ExtractionSettings
from opcost.terminal import show
from opcost.tuples.containment import tuples_of

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=Model())
@INPUT
@click.option(
    "--batch",
    "--batch-size",
    "batch_size",
    type=click.IntRange(1),
    help="Batch size of official inputs or of a config; with --input, put in front of the sizes.",
)
@ARGUMENT
@click.option(
    "--dtype",
    help="Dtype to convert parameters and inputs to. Default: as they are built.",
)
@CHANNELS_LAST
@DATABASES
@click.option(
    "--target",
    "-t",
    "targets",
    multiple=True,
    help="Show only targets of this name, or with this conditions_id.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Number of operators and modules to list.",
)
@click.option(
    "--depth",
    type=click.IntRange(1),
    help="Open all modules down to this depth, instead of the costliest.",
)
@click.option(
    "--offload",
    "budget_bytes",
    type=MemorySize(),
    help="Memory of the device for weights and activations, such as 2GiB: also print which weights "
    "are copied in from the host for each pass, and the cost.",
)
@click.option("--memory", is_flag=True, help="Also print the memory of an iteration, by module.")
@click.option(
    "--fit",
    "fit_bytes",
    type=MemorySize(),
    help="Memory, such as 16GiB: also print the largest batch that fits into it.",
)
@click.option(
    "--until",
    type=Number(0, 1, min_open=True),
    help="Such as 0.95: also print the costliest parts, only measured ones, until their sum is so "
    "near the time end to end, and what the others take.",
)
@click.option(
    "--per",
    metavar="WORK",
    help="First print the cost of so many samples of the batch, such as '1000 images', or, of a "
    "request to a language model, requests, sequences or (new) tokens.",
)
@click.option("--price", metavar="PRICE/kWh", help="With --per: such as '0.30 EUR/kWh'.")
@click.option("--carbon", "carbon_g_per_kwh", type=Number(0), help="With --per: in g CO2e/kWh.")
@click.option("--pue", type=Number(1), help="With --per: data centre's energy / device's energy.")
@click.option("--duty", type=Number(0, 1, min_open=True), help="With --per: busy / total time.")
@click.option(
    "--predict/--no-predict",
    default=True,
    help="Predict operators that nobody measured on a target from others there, if they are alike; "
    "without, the cost of the others is a lower limit. Default: --predict.",
)
@click.option("--details", is_flag=True, help="Also print flags, runs and what makes up each ±.")
@click.option("--json", "as_json", is_flag=True, help="Print the complete result as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print a row per operator tuple and target.")
@click.option("--parquet", type=_PATH, help="Write these rows to a file.")
@click.option(
    "--timeout",
    type=click.IntRange(1),
    default=1800,
    show_default=True,
    help="Seconds after which to stop a model whose code does not end.",
)
def command(
    model: str,
    inputs: tuple[str, ...],
    batch_size: int | None,
    arguments: tuple[str, ...],
    dtype: str | None,
    channels_last: bool,
    databases: tuple[Path, ...],
    targets: tuple[str, ...],
    top: int,
    depth: int | None,
    budget_bytes: int | None,
    memory: bool,
    fit_bytes: int | None,
    until: float | None,
    per: str | None,
    price: str | None,
    predict: bool,
    details: bool,
    as_json: bool,
    as_csv: bool,
    parquet: Path | None,
    timeout: int,
    **factors: float | None,
) -> None:
    """Estimate what MODEL costs on each target of a database, by operator and module; where none
    of it is measured, print its modules with calls, FLOPs and parameters.

    MODEL is a torchvision model, a model config (its path, or its name in config/models), or
    FILE.py:factory or package.module:factory with its inputs. Training steps, autocast and requests
    to language models need a model config. This measures nothing and needs neither a GPU nor
    weights. Exits with 0 if it has the complete answer on at least one target, with --offload with
    the copies from the host, with a price, carbon, PUE or duty the energy; else with 3, because
    operators are missing, predicted or not.

    \b
    opcost explain alexnet
    opcost explain resnet50 --input 8x3x112x112
    opcost explain vit_b_16 --input 32x3x224x224 --target h100 --offload 200MB
    opcost explain config/models/resnet34_56.yaml --json
    opcost explain resnet50 --batch 32 --per "1000 images" --price "0.30 EUR/kWh" --pue 1.2
    opcost explain my_package.nets:tagger --input "1x128:int64<30522" --argument width=64
    """
    skip_pandas_import()
    paths = databases or default_databases()
    if parquet is not None:
        code = Path(model.rpartition(":")[0])
        check_output(parquet, [*paths, code, *filter(None, [config_path(model)])])
    options = options_of(inputs, batch_size, arguments, dtype, channels_last)
    of_energy = {price, *factors.values()} != {None}
    if of_energy and per is None:
        raise OpcostError("--price, --carbon, --pue and --duty need --per, such as '1000 images'")
    if per is not None and (as_csv or budget_bytes is not None):
        raise OpcostError("--per works neither with --csv nor with --offload")
    defined, search_path = find_steps(model, options)
    word = "requests" if defined.generations else "samples"
    amount = None if per is None else parse_factors(per, word, price, **factors)
    settings = ExtractionSettings(timeout)
    answers: Sequence[Offload] = ()
    grown: list[dict[str, Any]] = []
    if fit_bytes is not None and (defined.generations or (inputs and batch_size is None)):
        raise OpcostError(
            "--fit varies the batch size of one model: give a model without generation, and inputs "
            "without their first dimension, with --batch 1"
        )
    if until is not None and defined.generations:
        raise OpcostError(f"--until: {model} is requests of several steps, not one model")
    extracted = [tuples_of(each, search_path, settings) for each in defined.models.values()]
    for each in extracted:
        if each.refusal is not None:
            raise OpcostError(f"{model}: {each.refusal}")
    if not defined.generations:
        [tuples] = extracted
        found: Sequence[Explanation | RequestExplanation] = (
            explained := explain(tuples, paths, targets, predict and not (budget_bytes or until))
        )
        grown = [growth(each, until) for each in explained if each.has_data] if until else []
        what = {"definition": json.loads(defined.models[tuples.model].to_json())}
        text = partial(as_text, tuples, explained, name=model, details=details)
        if budget_bytes is not None:
            offloaded = offload_memory(tuples, budget_bytes)
            answers = offload(offloaded, explained)
    elif budget_bytes is not None:
        raise OpcostError(
            f"--offload: {model} is requests to a language model, which also keep cached keys and "
            "values on the device: give a model without generation"
        )
    else:
        [generation] = defined.generations
        found = requested = explain_request(generation, extracted, paths, targets, predict)
        what = {"generation": asdict(generation)}
        text = partial(request_as_text, generation, requested, model)
    uses = [memory_use(each) for each in extracted] if memory else []
    if fit_bytes is not None:
        fitting = fit(partial(_memory_of_batch, model, options, settings), fit_bytes)
    work = [each.work(amount) for each in found] if amount else []
    rows = [row for each in found for row in each.tuples()] if parquet or as_csv else []
    if parquet is not None:
        records.write(parquet, schemas.EXPLANATION, rows)
    if as_csv:
        show(csv_text(pa.Table.from_pylist(rows, schemas.EXPLANATION)).removesuffix("\n"))
    elif as_json:
        targets_found = [each.to_document() for each in found]
        for document, answer in zip(targets_found, answers, strict=False):
            document["offload"] = answer.to_document()
        for document, cost in zip(targets_found, work, strict=False):
            document["units"] = cost.to_document()
        name = generation.name if defined.generations else extracted[0].model
        document = {"model": name, **what, "targets": targets_found}
        document |= {"memory": [each.to_document() for each in uses]} if uses else {}
        document |= {"until": grown} if grown else {}
        if fit_bytes is not None:
            document["fit"] = {"bytes": fit_bytes, "batch_size": fitting[0], "text": fitting[1]}
        show(json.dumps(document, indent=2, default=dict))
    else:
        if work:
            show("\n".join([*work_lines(work), ""]))
        show(text(top=top, depth=depth))
        if predict and not targets and len(found) > MOST_PREDICTED:
            show(f"Nothing is predicted for {len(found)} targets: name some with --target")
        if budget_bytes is not None:
            show(f"\n{offload_as_text(offloaded, answers, top)}")
        for until_near in grown:
            show(f"\n{growth_text(until_near)}")
        for use in uses:
            show(f"\n{memory_as_text(use, top)}")
        if fit_bytes is not None:
            show(f"\n{fitting[1]}")
    complete = [each.is_complete and not each.is_predicted for each in found]
    if budget_bytes is not None:
        complete = [a and b.is_complete for a, b in zip(complete, answers, strict=True)]
    if of_energy:
        complete = [a and b.energy is not None for a, b in zip(complete, work, strict=True)]
    if until is not None:
        complete = [each["reached"] is not None for each in grown]
    if not any(complete):
        raise SystemExit(INCOMPLETE)


def _memory_of_batch(
    model: str, options: Options, settings: ExtractionSettings, batch: int
) -> MemoryUse:
    """The memory of a model at another batch size."""
    steps, path = find_steps(model, replace(options, batches=(batch,)))
    [definition] = steps.models.values()
    return memory_use(tuples_of(definition, path, settings))


def options_of(
    inputs: Sequence[str],
    batch_size: int | None,
    arguments: Sequence[str],
    dtype: str | None,
    channels_last: bool,
) -> "Options":
    """The options of a model from the command line."""
    return Options(
        batches=() if batch_size is None else (batch_size,),
        inputs=tuple(map(parse_input, inputs)),
        dtypes=(dtype,),
        channels_last=channels_last,
        arguments=dict(map(parse_argument, arguments)),
    )
