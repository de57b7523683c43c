"""`opcost calibrate`."""

from pathlib import Path

import click

from opcost.terminal import show

_PATH = click.Path(path_type=Path, dir_okay=False)
_RECORDING = click.Path(path_type=Path)


@click.command()
@click.argument("recording", type=_RECORDING)
@click.argument("wattmeter", type=_PATH)
@click.option("--device", "-d", help="The device in RECORDING. Default: its only one.")
@click.option(
    "--sensor", type=_PATH, help="A target's sensor.json, in which to keep gain and offset."
)
def command(recording: Path, wattmeter: Path, device: str | None, sensor: Path | None) -> None:
    """Find the gain of a power sensor from the values of an external WATTMETER.

    RECORDING is the .parquet file of `opcost measure --output`, WATTMETER a CSV file with times
    (seconds, or ISO 8601) and watts, both of one load that begins and ends several times, for times
    of unequal length. Their clocks may differ.

    \b
    opcost measure --output run.parquet -- python load.py
    opcost calibrate run.parquet wattmeter.csv --device cuda:0
    """
    from opcost.energy.sensor import check_calibrated, keep_calibration
    from opcost.energy.wattmeter import calibrate, read_wattmeter
    from opcost.power.export import recorded_device, recorded_power
    from opcost.text import margin, significant, with_interval

    name = recorded_device(recording, device)
    if sensor is not None:
        check_calibrated(sensor, name)
    found = calibrate(read_wattmeter(wattmeter), recorded_power(recording, name))
    lines = [
        f"gain    {with_interval(found.gain, significant)}",
        f"offset  {found.offset_w.value:.2f} W "
        f"[{found.offset_w.low:.2f} W, {found.offset_w.high:.2f} W]",
        f"The wattmeter shows offset + gain x sensor ({found.values} values, correlation "
        f"{found.correlation:.3f}). Its clock minus that of the sensor: {found.shift_s:.2f} s.",
        "It also shows what it supplies beside the device: a plug has the whole computer, and the "
        "losses of its power supply, in gain and offset.",
    ]
    if found.repeats_s is not None:
        lines.append(
            f"The load repeats itself after {found.repeats_s:.1f} s, so the clock may also be off "
            "by that, or a multiple of it; gain and offset are the same. To know the clock, record "
            "a load whose parts have unequal lengths."
        )
    show("\n".join(lines))
    if sensor is not None:
        keep_calibration(sensor, found, name)
        show(
            f"gain_uncertainty {margin(found.gain_uncertainty)}, the largest error of its readings "
            f"as they are that the interval of the gain allows, is kept in {sensor}: rows measured "
            "from now on state it"
        )
