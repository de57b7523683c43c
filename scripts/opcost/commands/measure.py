"""`opcost measure`."""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opcost.commands.parameters import DEVICES, Duration
from opcost.terminal import tell
from opcost.text import seconds

if TYPE_CHECKING:
    from opcost.power.monitor import Monitor
    from opcost.power.windows import Window
    from opcost.statistics import Estimate

_PATH = click.Path(path_type=Path, dir_okay=False)
_SOON_S = 0.05


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@DEVICES
@click.option("--pid", type=click.IntRange(1), help="Measure until this process ends.")
@click.option("--duration", type=Duration(), help="Measure for this time, such as 60 or 10min.")
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of runs of COMMAND; the interval of the mean holds the run-to-run variation and "
    "the interval of each run.",
)
@click.option(
    "--period",
    type=Duration(0.001, 60),
    help="Time between readings, 0.001 to 60 s. Default: adapted to the sensors.",
)
@click.option(
    "--every",
    type=Duration(0.1),
    help="Print the energy so far at this interval, such as 10 or 5min.",
)
@click.option("--label", "labels", multiple=True, metavar="NAME=TEXT", help="Kept with --output.")
@click.option("--output", "-o", type=_PATH, help="Write all readings to a .parquet or .csv file.")
@click.option("--append", is_flag=True, help="Continue the recording in --output.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@click.option("--to", type=_PATH, help="Write the answer to this file instead of standard error.")
def command(
    command: tuple[str, ...],
    devices: tuple[str, ...],
    pid: int | None,
    duration: float | None,
    repeat: int,
    period: float | None,
    every: float | None,
    labels: tuple[str, ...],
    output: Path | None,
    append: bool,
    as_json: bool,
    to: Path | None,
) -> None:
    """Measure the energy of COMMAND, as `time` measures its time.

    Runs COMMAND, passes streams and signals on, prints the energy of each device on standard error,
    and exits with the exit code of COMMAND. The energy is of entire devices, including other
    programs that run there.

    \b
    opcost measure -- python train.py --epochs 3
    opcost measure --repeat 5 --output runs.parquet -- make
    opcost measure --pid 4711
    opcost measure --duration 60 --device cuda:0
    """
    from opcost.errors import OpcostError
    from opcost.files import check_output
    from opcost.power.attribution import NOBODY
    from opcost.power.command import CannotRun, ended_by_signal, run_command, watch
    from opcost.power.monitor import Monitor

    if not command and pid is None and duration is None:
        raise click.UsageError("give a COMMAND, --pid or --duration")
    if command and (pid is not None or duration is not None):
        raise click.UsageError(
            "give only one of COMMAND, --pid and --duration (--pid may have a --duration)"
        )
    if repeat > 1 and not command:
        raise click.UsageError("--repeat is for a COMMAND")
    for option, given in (("--append", append), ("--label", labels)):
        if given and output is None:
            raise click.UsageError(f"{option} needs --output")
    during = _print_so_far if every else None
    place = None
    if to is not None:  # opened before anything is measured, in case it cannot be written
        check_output(to, [] if output is None else [output])
        place = to.open("w", encoding="utf-8")
    code, stopped, ran_before_s = 0, None, None
    windows: list[Window] = []
    with Monitor(
        devices or None,
        period_s=period,
        output=output,
        append=append,
        labels=_labels(labels),
        user=None if command else pid or NOBODY,
    ) as monitor:
        if not monitor.devices:
            tell(f"opcost: no energy will be measured ({_why_none(monitor, bool(devices))})")
        for number in range(1, repeat + 1):
            try:
                if command:
                    window, code = run_command(command, monitor, during, every or 0.0)
                else:
                    began_s = _began_s(pid)
                    window, code = watch(pid, duration, monitor, during, every or 0.0)
                    if began_s is not None:
                        ran_before_s = max(0.0, time.time() - began_s - window.time_s)
                    stopped = ended_by_signal(window, code, duration)
            except CannotRun as error:
                code, stopped = error.code, str(error)
                break
            if code and repeat > 1:  # a failed run does other work than a successful one
                out = ": it is not in the mean" if windows else ""
                stopped = f"run {number} of {repeat} failed (exit code {code}){out}"
            if not code or not windows:
                windows.append(window)
            if code:
                break
        if windows:
            answer = _answer(windows, stopped, ran_before_s, as_json)
            if place is None:
                tell(answer)
            else:
                try:
                    with place:
                        place.write(f"{answer}\n")
                except OSError as error:
                    raise OSError(error.errno, error.strerror, str(to)) from error
        elif stopped:
            tell(f"opcost: {stopped}")
            monitor.discard()
        try:
            monitor.close()
        except OpcostError as error:
            tell(f"opcost: {error}")
            code = code or 1
    if monitor.written is not None:
        tell(f"opcost: wrote {monitor.written} readings to {output}")
    raise SystemExit(code)


def _labels(texts: Sequence[str]) -> dict[str, str]:
    from opcost.errors import OpcostError

    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise OpcostError(f"{text!r} is not a label: give NAME=TEXT, such as batch=8")
        if name in found:
            raise OpcostError(f"the label {name!r} is given twice: {found[name]!r} and {value!r}")
        found[name] = value
    return found


def _why_none(monitor: "Monitor", chosen: bool) -> str:
    """Why there is no meter; if no devices were chosen, also why some are not seen."""
    from opcost.energy.meters import unseen_kinds

    missing = [f"{name}: {why}" for name, why in monitor.missing.items()]
    return "; ".join([*missing, *([] if chosen else unseen_kinds())]) or "no device"


def _print_so_far(window: "Window") -> None:
    tell(window.line())


def _began_s(pid: int | None) -> float | None:
    """The start of a process as a Unix time; None if unknown."""
    import psutil

    with suppress(psutil.Error):
        return None if pid is None else float(psutil.Process(pid).create_time())
    return None


def _answer(
    windows: Sequence["Window"], stopped: str | None, ran_before_s: float | None, as_json: bool
) -> str:
    """The energy of the windows, why they ended early, and the time they miss."""
    from opcost.power.window_text import as_document, as_text, repeated

    name, devices = windows[0].name, windows[0].devices
    time_s: float | Estimate = windows[0].time_s
    if len(windows) > 1:
        time_s, devices = repeated([(each.time_s, each.devices) for each in windows])
        name = f"{name}, mean of {len(windows)} runs"
    if as_json:
        document = as_document(name, time_s, len(windows), devices)
        ended = {"stopped": stopped, "ran_before_s": ran_before_s}
        return json.dumps({**document, **ended}, indent=2)
    lines = [f"opcost: {stopped}"] if stopped else []
    if ran_before_s is not None and ran_before_s > _SOON_S:
        lines.append(
            f"opcost: it had run for {seconds(ran_before_s)} before, which is not in the energy"
        )
    return "\n".join([*lines, "", *as_text(f"opcost: {name}", time_s, devices)])
