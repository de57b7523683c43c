"""`opcost run`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from opcost.commands import INCOMPLETE
from opcost.commands.parameters import Duration, Model, Numbers
from opcost.terminal import show

if TYPE_CHECKING:
    from opcost.models.definition import ModelDefinition
    from opcost.models.variants import Variant
    from opcost.runs.study_file import Studies
    from opcost.runs.workflow import Only

_OPTIONS = (
    click.argument("models", type=Model(), nargs=-1),
    click.option("--batch", type=Numbers(), default=(), help="Batch sizes, such as 1,8,32."),
    click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="SIZES[:TYPE][<HIGH]",
        help="An input, such as 1x3x224x224 or 8x128:int64<30522; with --batch, without the batch "
        "dimension, which is put in front: 3x224x224. Repeat it for each input, in order.",
    ),
    click.option(
        "--dtype",
        help="Dtypes to convert parameters and inputs to, such as float32,bfloat16. Default: as "
        "they are built.",
    ),
    click.option("--channels-last", is_flag=True, help="Use channels_last memory format."),
    click.option(
        "--argument",
        "arguments",
        multiple=True,
        metavar="NAME=VALUE",
        help="A keyword argument of the constructor or factory.",
    ),
)
_TARGET_OPTIONS = (
    click.option(
        "--device",
        help="auto, cpu, cuda or cuda:N. Default: the targets of config/config.yaml, or auto.",
    ),
    click.option(
        "--threads", type=Numbers(), default=(), help="Numbers of CPU threads, such as 1,2."
    ),
    click.option(
        "--max-device-time",
        type=Duration(),
        help="Measure for at most this time on each target, what costs most first: 90s, 10min, 2h. "
        "Only what this command measures counts: one that was stopped begins with all of it again.",
    ),
)


def what_to_measure(command: Callable) -> Callable:
    """Add the arguments that name models and targets."""
    return _with(_OPTIONS, where_to_measure(command))


def where_to_measure(command: Callable) -> Callable:
    """Add the options that name targets, and the time on each."""
    return _with(_TARGET_OPTIONS, command)


def _with(options: Sequence[Callable], command: Callable) -> Callable:
    for option in reversed(options):
        command = option(command)
    return command


verbosity = click.option("--verbose", is_flag=True, help="Show all that Snakemake prints.")


@click.command()
@what_to_measure
@verbosity
def command(max_device_time: float | None, verbose: bool, **named: Any) -> None:
    """Measure MODELS, whole and operator by operator, and print what they cost.

    A MODEL is a torchvision model or a pattern of them, a model config (its path, or its name in
    config/models), or FILE.py:factory or package.module:factory with its inputs. Each batch size
    and dtype is a model of its own, with a config in config/models. Training steps, autocast and
    requests to language models need a model config. What is measured already is not measured again:
    the same command resumes a run that was stopped.

    Models and targets add to config/run.yaml: tables and report show those of all runs. Without a
    MODEL, those of the study in config/config.yaml are measured.

    \b
    opcost run resnet50 --batch 1,8,32
    opcost run resnet18 vit_b_16 --device cpu --threads 1,2
    opcost run "resnet*" --max-device-time 10min
    opcost run my_nets.py:tagger --batch 1,8 --input "128:int64<30522" --argument width=64
    """
    with prepared(**named) as only:
        measure(only, budget(max_device_time), verbose)


def _answer(only: "Only | None") -> tuple[str, bool]:
    """The costs of the models, and whether they are complete; without `only`, the summary of the
    study.
    """
    from opcost.files import content_of
    from opcost.results_folder import SUMMARY
    from opcost.runs.answer import answer

    if only is None:
        return content_of(SUMMARY).decode().rstrip(), True
    return answer(only)


def measure(
    only: "Only | None",
    settings: Mapping[str, Any] | None = None,
    verbose: bool = False,
    answer: Callable[["Only | None"], tuple[str, bool]] = _answer,
) -> None:
    """Run the workflow and print the answer, which also says whether it is complete."""
    from opcost.results_folder import REPORT
    from opcost.runs.answer import ended_by_budget
    from opcost.runs.workflow import run_workflow

    ended = run_workflow(only, settings, verbose=verbose)
    if ended.code:
        raise SystemExit(ended.code)
    text, complete = answer(only)
    if complete and not ended.jobs:
        show("Nothing to measure: all of it is measured already.", err=True)
    show(f"\n{text}\n\nMore on one page: {REPORT}")
    for line in ended_by_budget(only, settings or {}):
        show(line)
    if not complete:
        raise SystemExit(INCOMPLETE)


def budget(max_device_time: float | None) -> dict[str, float]:
    """The key of the configuration that it is."""
    return {} if max_device_time is None else {"max_device_time_s": max_device_time}


@contextmanager
def prepared(
    models: Sequence[str],
    batch: tuple[int, ...],
    inputs: Sequence[str],
    dtype: str | None,
    channels_last: bool,
    arguments: Sequence[str],
    device: str | None,
    threads: tuple[int, ...],
) -> Iterator["Only"]:
    """Write the configs and the study that the arguments stand for, as `provided` does."""
    from opcost.costs.model_argument import parse_argument, parse_input
    from opcost.models.variants import Options, variants
    from opcost.runs.study_file import add_to_runs, read_studies

    studies = read_studies()
    if not models:
        if any([batch, inputs, dtype, channels_last, arguments, device, threads]):
            raise click.UsageError("options of models and targets need a MODEL")
        if studies.runs:
            add_to_runs(studies, (), {})  # targets that are new in the study
        yield studies.written_by_user()
        return
    options = Options(
        batch,
        tuple(map(parse_input, inputs)),
        tuple(dict.fromkeys(dtype.split(","))) if dtype else (None,),
        channels_last,
        dict(map(parse_argument, arguments)),
    )
    asked = [each for model in models for each in variants(model, options, studies.directory)]
    with provided(asked, studies, device, threads) as only:
        yield only


@contextmanager
def provided(
    asked: Sequence["Variant"],
    studies: "Studies",
    device: str | None,
    threads: tuple[int, ...],
) -> Iterator["Only"]:
    """Write these configs and the study of their models; the models for each target.

    In the end, configs written here of which no model was built are deleted, and new targets whose
    device was not identified are left out of the study.
    """
    from opcost.configuration import checked
    from opcost.results_folder import device_file, extraction, target_folder
    from opcost.runs.configs import provide
    from opcost.runs.study_file import RUN_STUDY, add_to_runs, read_studies, withdraw
    from opcost.runs.targets import chosen_targets
    from opcost.runs.unsupported import refuse_copies_on_processor

    directory = studies.directory
    targets = chosen_targets(studies.targets, studies.known_targets, device, threads)
    checked({"targets": targets}, "config", "the command line")
    names, written = provide(asked, directory)
    vanished = add_to_runs(studies, names, targets)
    for name, reason in vanished.items():
        show(f"left out of {RUN_STUDY}: {name}: {reason}", err=True)
    only = dict.fromkeys(targets, names)
    paths = {name: str(directory / f"{name}.yaml") for name in written}
    steps_of: dict[str, list[str]] = {}
    try:
        # Wrong settings are an error here, before Snakemake starts.
        found = read_studies().study(only)
        for target, asked_names in only.items():
            steps = [found.models[step] for name in asked_names for step in found.models_of(name)]
            refuse_copies_on_processor(steps, target, found.conditions[target].target.device)
        steps_of |= {name: found.models_of(name) for name in written}
        _say(
            "wrote",
            (
                f"{paths[name]} ({_content([found.models[step] for step in steps])})"
                for name, steps in steps_of.items()
            ),
        )
        yield only
    finally:
        unbuilt = [
            name
            for name in written
            if not any(extraction(step).exists() for step in steps_of.get(name, [name]))
        ]
        absent = [
            name
            for name in targets.keys() - {*studies.targets, *studies.known_targets}
            if not device_file(target_folder(name)).exists()
        ]
        withdraw(directory, unbuilt, absent)
        _say("deleted, as its model was not built:", (paths[name] for name in unbuilt))


def _content(models: Sequence["ModelDefinition"]) -> str:
    """What a config says of its models: the inputs, or the operators in their place."""
    from opcost.text import counted

    operator = models[0].operator
    if operator is None:
        return ", ".join(map(str, models[0].inputs))
    return operator.call if len(models) == 1 else counted(len(models), "operator")


def _say(what: str, paths: Iterable[str]) -> None:
    from opcost.text import wrapped

    if text := ", ".join(paths):
        show("\n".join(wrapped([f"{what} {text}"])), err=True)
