"""Rule identify_target: the device that a target stands for on this machine."""

from opcost.workers.client import run


def main() -> None:
    """Parse the command line, and do it."""
    import argparse
    from pathlib import Path

    from opcost.errors import reported
    from opcost.measuring.target_identity import identify_target
    from opcost.study import Conditions
    from opcost.terminal import announce

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conditions", type=Conditions.from_json, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    with reported():
        announce(f"[device] {arguments.output.parent.name}: measuring what a call costs there")
        identify_target(arguments.conditions.target, arguments.output)


if __name__ == "__main__":
    run(__file__, main)
