"""`opcost run`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from opcost.commands import INCOMPLETE
from opcost.commands.parameters import (
    ARGUMENT,
    CHANNELS_LAST,
    INPUT,
    Duration,
    Model,
    Numbers,
)
from opcost.costs.model_argument import parse_argument, parse_input
from opcost.files import content_of
from opcost.models.variants import Options, variants
from opcost.results_folder import DETAILS, REPORT, SUMMARY
from opcost.runs.answer import answer, ended_by_budget
from opcost.runs.request import Request, default_request, model_directory, request
from opcost.runs.workflow import run_workflow
from opcost.terminal import show

_OPTIONS = (
    click.argument("models", type=Model(), nargs=-1),
    click.option("--batch", type=Numbers(), default=(), help="Batch sizes, such as 1,8,32."),
    INPUT,
    click.option(
        "--dtype",
        help="Dtypes to convert parameters and inputs to, such as float32,bfloat16. Default: as "
        "they are built.",
    ),
    CHANNELS_LAST,
    ARGUMENT,
)
budgeted = click.option(
    "--max-device-time",
    type=Duration(),
    help="Measure for at most this time on each target, what costs most first: 90s, 10min, 2h. "
    "Only the time of this command counts: after a stop, the same command has all of it again. "
    "Start-up, call overhead and waiting for a device in use come on top.",
)
_TARGET_OPTIONS = (
    click.option(
        "--device",
        help="auto, cpu, cuda or cuda:N. Default: the targets of config/config.yaml, or auto.",
    ),
    click.option(
        "--threads", type=Numbers(), default=(), help="Numbers of CPU threads, such as 1,2."
    ),
    budgeted,
)


def what_to_measure(command: Callable) -> Callable:
    """Add the arguments that name models and targets."""
    return _with(_OPTIONS, where_to_measure(command))


def where_to_measure(command: Callable) -> Callable:
    """Add the options of targets and their measuring time."""
    return _with(_TARGET_OPTIONS, command)


def _with(options: Sequence[Callable], command: Callable) -> Callable:
    for option in reversed(options):
        command = option(command)
    return command


verbosity = click.option("--verbose", is_flag=True, help="Show all output of Snakemake.")


@click.command()
@what_to_measure
@click.option("--details", is_flag=True, help="Also print intervals, flags and what they mean.")
@verbosity
def command(max_device_time: float | None, details: bool, verbose: bool, **named: Any) -> None:
    """Measure MODELS end to end and operator by operator, and print what they cost.

    A MODEL is a torchvision model or a pattern of them, a model config (its path, or its name in
    config/models), or FILE.py:factory or package.module:factory with its inputs. Each batch size
    and dtype is a model of its own. Training steps, autocast and requests to language models need a
    model config. What is measured already is not measured again: the same command resumes a run
    that was stopped.

    It prints the command of Snakemake that it runs. Tables and report show all that is measured in
    this folder. Without a MODEL, the study in config/config.yaml is measured.

    \b
    opcost run resnet50 --batch 1,8,32
    opcost run resnet18 vit_b_16 --device cpu --threads 1,2
    opcost run "resnet*" --max-device-time 10min
    opcost run my_nets.py:tagger --batch 1,8 --input "128:int64<30522" --argument width=64
    """
    measure(requested(budget(max_device_time), **named), verbose, partial(_answer, details=details))


def _answer(request: "Request", details: bool = False) -> tuple[str, bool]:
    """The costs of the models, or the summary of the study; and whether they are complete."""
    text, complete = answer(request, details)
    if "models" not in request.settings:
        files = [SUMMARY, *([DETAILS] if details else [])]
        text = "\n\n".join(content_of(path).decode().rstrip() for path in files)
    return text, complete


def measure(
    request: "Request",
    verbose: bool = False,
    answer: Callable[["Request"], tuple[str, bool]] = _answer,
) -> None:
    """Run the workflow and print the answer; exit if it is incomplete."""
    ended = run_workflow(request.settings, verbose=verbose)
    if ended.code:
        raise SystemExit(ended.code)
    if not is_answered(request, answer, not ended.jobs):
        raise SystemExit(INCOMPLETE)


def is_answered(
    request: "Request",
    answer: Callable[["Request"], tuple[str, bool]] = _answer,
    nothing_measured: bool = False,
) -> bool:
    """Print the answer, and return whether it is complete."""
    text, complete = answer(request)
    if complete and nothing_measured:
        show("Nothing to measure: all of it is measured already.", err=True)
    show(f"\n{text}\n\nMore on one page: {REPORT}")
    for line in ended_by_budget(request.study):
        show(line)
    return complete


def budget(max_device_time: float | None) -> dict[str, Any]:
    """The budget as a key of the configuration."""
    return {} if max_device_time is None else {"max_device_time_s": max_device_time}


def requested(
    settings: Mapping[str, Any],
    models: Sequence[str],
    batch: tuple[int, ...],
    inputs: Sequence[str],
    dtype: str | None,
    channels_last: bool,
    arguments: Sequence[str],
    device: str | None,
    threads: tuple[int, ...],
) -> "Request":
    """The request of these arguments, with further settings."""
    if not models:
        if any([batch, inputs, dtype, channels_last, arguments, device, threads]):
            raise click.UsageError("options of models and targets need a MODEL")
        return default_request(settings)
    options = Options(
        batch,
        tuple(map(parse_input, inputs)),
        tuple(dict.fromkeys(dtype.split(","))) if dtype else (None,),
        channels_last,
        dict(map(parse_argument, arguments)),
    )
    directory = model_directory()
    asked = [each for model in models for each in variants(model, options, directory)]
    return request(asked, device, threads, settings)
