"""Rule characterize_sensor: what the power sensor of a target's device is like."""

from opcost.workers.client import run


def main() -> None:
    """Parse the command line, and do it."""
    import argparse
    from pathlib import Path

    from opcost.errors import reported
    from opcost.measuring.job import sensor_job

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--device", required=True, help="as the target's settings name it")
    parser.add_argument("--device-file", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    with reported():
        sensor_job(arguments.device, arguments.target, arguments.device_file, arguments.output)


if __name__ == "__main__":
    run(__file__, main)
