"""Rule characterize_sensor: what the power sensor of a target's device is like."""

import argparse
from pathlib import Path

from opcost.errors import reported
from opcost.job import sensor_job

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--device", required=True, help="as the target's settings name it")
    parser.add_argument("--device-file", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    with reported():
        sensor_job(arguments.device, arguments.target, arguments.device_file, arguments.output)
