"""Commands of a campaign: `PYTHONPATH=scripts python3 -m campaign --help`."""

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from campaign import HOME, HOST, RECORD, WHEELS, wheels
from campaign.archive import KEPT, NEEDED, pack, unpack
from campaign.piece import Piece, run_steps
from opcost.errors import OpcostError, reported

_BEGAN_S = time.monotonic()
_MIB = 2**20
_LEAST_PART = 2**16
_PACK_S = 15.0


def main() -> None:
    """Parse the command line, and do it."""
    parser = argparse.ArgumentParser(prog="python3 -m campaign")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("describe", help="on the host: print what it has, for campaign/host.json")
    commands.add_parser("wheels", help="at home: download what the host lacks")
    run = commands.add_parser("run", help="on the host: go on with the campaign for some minutes")
    run.add_argument("--minutes", type=positive, required=True, help="when it must have ended")
    run.add_argument("--out", type=Path, required=True, help="folder of what is to travel home")
    run.add_argument("--largest-mib", type=positive, default=16, help="of a file that may travel")
    run.add_argument("--study-minutes", type=positive, default=20, help="of the study at most")
    run.add_argument("--loop-s", type=positive, default=30, help="of each loop beside nvidia-smi")
    run.add_argument("--configfile", nargs="+", default=["config/gpu.yaml"])
    run.add_argument("--config", nargs="*", default=[], metavar="KEY=VALUE")
    commands.add_parser("unpack", help="at home: put campaign/home where the repository has it")
    given = parser.parse_args()
    with reported():
        if given.command == "describe":
            print(json.dumps(wheels.describe(), indent=1))
        elif given.command == "wheels":
            fetch()
        elif given.command == "run":
            go_on(given)
        else:
            print(unpack(HOME, Path()))


def positive(text: str) -> float:
    """A finite number above zero."""
    if not 0 < (number := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number


def setting(text: str) -> tuple[str, str]:
    """Key and value of KEY=VALUE. Raises OpcostError if there is no value."""
    key, equals, value = text.partition("=")
    if not equals:
        raise OpcostError(f"--config {text}: give KEY=VALUE, as to Snakemake")
    return key, value


def fetch() -> None:
    """Fetch the wheels, and say which there are."""
    failed = wheels.fetch(wheels.read_host(HOST), Path("requirements.txt"), WHEELS)
    sizes = [path.stat().st_size for path in WHEELS.glob("*.whl")]
    print(f"{len(sizes)} wheels, {sum(sizes) / _MIB:.0f} MiB, in {WHEELS}")
    if failed:
        print(f"No wheel for the host: {', '.join(failed)}", file=sys.stderr)


def go_on(given: argparse.Namespace) -> None:
    """Run a piece, from what the last one brought home."""
    from campaign.steps import steps

    if any(given.out.resolve().is_relative_to(Path(each).resolve()) for each in KEPT):
        raise OpcostError(
            f"--out {given.out} is in a folder that travels itself ({', '.join(KEPT)}): name "
            "another"
        )
    if HOME.exists() and not all(Path(each).exists() for each in NEEDED):
        if not Path("results").exists():  # what was done is then what came from home
            (RECORD / "state.json").unlink(missing_ok=True)
        unpack(HOME, Path())
    with tempfile.TemporaryDirectory() as site:
        given.out.mkdir(parents=True, exist_ok=True)
        piece = Piece(_BEGAN_S + 60 * given.minutes - _PACK_S)
        if WHEELS.exists():
            wheels.install(WHEELS, Path(site))
            sys.path.append(site)
        paths = ["scripts", ".", site, os.environ.get("PYTHONPATH", "")]
        piece.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

        def keep() -> None:
            pack(Path(), given.out, max(_LEAST_PART, int(given.largest_mib * _MIB)))
            shutil.copy(RECORD / "log.txt", given.out)

        piece.keep = keep
        config = dict(map(setting, given.config))
        piece.say(f"{piece.left_s():.0f} s are left of {given.minutes:g} minutes")
        wanted = steps(given.configfile, config, 60 * given.study_minutes, given.loop_s)
        try:
            complete = run_steps(piece, wanted)
            piece.say("Nothing is left to do." if complete else "To be continued.")
        finally:
            keep()


if __name__ == "__main__":
    main()
