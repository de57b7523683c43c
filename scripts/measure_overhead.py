"""Rule measure_overhead: what calls cost on a target's host, in a round after the first."""

from opcost.workers.client import run


def main() -> None:
    """Parse the command line, and do it."""
    import argparse
    from pathlib import Path

    from opcost.errors import reported
    from opcost.measuring.target_identity import measure_overhead
    from opcost.study import Conditions

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conditions", type=Conditions.from_json, required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--device", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    with reported():
        settings = arguments.conditions.target
        measure_overhead(settings, arguments.target, arguments.device, arguments.output)


if __name__ == "__main__":
    run(__file__, main)
