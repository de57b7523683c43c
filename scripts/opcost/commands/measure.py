"""`opcost measure`."""

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opcost.commands.parameters import DEVICES, Duration
from opcost.terminal import tell
from opcost.text import seconds

if TYPE_CHECKING:
    from opcost.power.windows import Window

_PATH = click.Path(path_type=Path, dir_okay=False)


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
    help="Print the energy so far at this interval, such as 10 or 5min; the interval of --log.",
)
@click.option(
    "--log",
    type=_PATH,
    help="Write power, energy, use, temperatures and memory to a new CSV file, at the interval of "
    "--every (default: 1 s), instead of printing the energy so far.",
)
@click.option(
    "--idle",
    type=Duration(0.5, 3600),
    help="First measure for this time, in which nothing may run; then also state the energy above "
    "idle.",
)
@click.option("--total", is_flag=True, help="Also state the energy of all devices together.")
@click.option("--label", "labels", multiple=True, metavar="NAME=TEXT", help="Kept with --output.")
@click.option("--output", "-o", type=_PATH, help="Write all readings to a new .parquet file.")
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
    log: Path | None,
    idle: float | None,
    total: bool,
    labels: tuple[str, ...],
    output: Path | None,
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
    from opcost.power.attribution import CHILDREN, NOBODY
    from opcost.power.command import KILLED, CannotRun, During, run_command, watch
    from opcost.power.machine import PowerLog
    from opcost.power.monitor import Monitor

    if (not command) == (pid is None and duration is None):
        raise click.UsageError(
            "give one of COMMAND, --pid and --duration (--pid may have a --duration)"
        )
    if repeat > 1 and not command:
        raise click.UsageError("--repeat is for a COMMAND")
    if idle and not command:
        raise click.UsageError("--idle is for a COMMAND: nothing may run before")
    if labels and output is None:
        raise click.UsageError("--label needs --output")
    if to is not None and output is not None and to.resolve() == output.resolve():
        raise click.UsageError("--output and --to are the same file")
    place = None
    if to is not None:  # opened before anything is measured, in case it cannot be written
        check_output(to, [] if output is None else [output])
        place = to.open("w", encoding="utf-8")
    code = 0
    stopped: str | None = None
    windows: list[Window] = []
    with Monitor(
        devices or None,
        period_s=period,
        output=output,
        labels=_labels(labels),
        user=CHILDREN if command else pid or NOBODY,
        idle_s=idle or 0.0,
    ) as monitor:
        if not monitor.devices:
            missing = [f"{name}: {why}" for name, why in monitor.missing.items()]
            why = "; ".join([*missing, *monitor.unseen]) or "no device"
            what = "energy" if idle is None else "energy and no idle power"
            tell(f"opcost: no {what} will be measured ({why})")
        during: During | None = (lambda window: tell(window.line())) if every else None
        if log is not None:
            during, every = PowerLog(log, monitor), every or 1.0
        for run in range(1, repeat + 1):
            try:
                if command:
                    window, code = run_command(command, monitor, during, every or 0.0)
                else:
                    window, code = watch(pid, duration, monitor, during, every or 0.0)
                    if code:
                        name = signal.Signals(code - KILLED).name
                        stopped = f"{name} ended it after {seconds(window.time_s)}"
            except CannotRun as error:
                code, stopped = error.code, str(error)
                break
            if code and repeat > 1:  # a failed run does other work than a successful one
                out = ": it is not in the mean" if windows else ""
                stopped = f"run {run} of {repeat} failed (exit code {code}){out}"
            if not code or not windows:
                windows.append(window)
            if code:
                break
        if windows:
            answer = _answer(windows, stopped, as_json, total)
            if place is None:
                tell(answer)
            else:
                with place:
                    place.write(f"{answer}\n")
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


def _answer(windows: Sequence["Window"], stopped: str | None, as_json: bool, total: bool) -> str:
    """The energy of the windows, and why they ended early."""
    from opcost.power.energy import mean_of_runs, together
    from opcost.power.text import as_document, as_text
    from opcost.statistics import Estimate, mean

    name, devices = windows[0].name, windows[0].devices
    time = Estimate(windows[0].time_s, None, None)
    if len(windows) > 1:
        time = mean([each.time_s for each in windows])
        devices = {n: mean_of_runs([each.devices[n] for each in windows]) for n in devices}
        name = f"{name}, mean of {len(windows)} runs"
    all_of = dict([together(devices)]) if total else {}
    if as_json:
        machine = [each.machine for each in windows]
        document = as_document(name, time, len(windows), devices, all_of, machine)
        return json.dumps({**document, "stopped": stopped}, indent=2)
    lines = [f"opcost: {stopped}"] if stopped else []
    return "\n".join([*lines, "", *as_text(f"opcost: {name}", time, {**devices, **all_of})])
