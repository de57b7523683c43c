"""Rule benchmark_operator: the row of one operator tuple on one target."""

from opcost.workers.client import run


def main() -> None:
    """Parse the command line, and do it."""
    import argparse
    from pathlib import Path

    from opcost.errors import reported
    from opcost.measuring.job import Place, operator_job
    from opcost.study import Conditions

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuple-id", required=True)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--device", type=Path, required=True)
    parser.add_argument("--sensor", type=Path, required=True)
    parser.add_argument("--conditions", type=Conditions.from_json, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    with reported():
        place = Place(arguments.target, arguments.conditions, arguments.device, arguments.sensor)
        operator_job(arguments.tuple_id, arguments.manifest, place, arguments.output)


if __name__ == "__main__":
    run(__file__, main)
