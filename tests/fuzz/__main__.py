"""Try damaged and impossible files for some seconds of each kind, and print what came of it."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.kinds import KINDS
from tests.fuzz.tally import fuzz


def main() -> None:
    """Parse the command line, and do it. Exits with 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each kind")
    parser.add_argument("--only", choices=KINDS, action="append", help="this kind; may be repeated")
    parser.add_argument("--seed", default="0", help="another one draws other cases")
    arguments = parser.parse_args()
    wrong = 0
    for name in arguments.only or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            tally = fuzz(name, KINDS[name], Path(folder), arguments.seconds, arguments.seed)
        print("\n".join(tally.lines()), flush=True)
        wrong += len(tally.tracebacks) + len(tally.passed)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
