"""Try faults on a copy of a small study, judge what happens, and print a table."""

import argparse
import collections
import importlib
import json
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.fault import BAD, BY_HAND, FAULTS, GOOD, POOR, Fault, Found
from tests.faults.study import Study

KINDS = ("kills", "staleness", "configurations", "environment", "security")
for kind in KINDS:
    importlib.import_module(f"tests.faults.{kind}")
REPOSITORY = Path(__file__).parent.parent.parent


def main() -> None:
    """Parse the command line, and do it. Exits with 1 if anything was BAD."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="numbers, or what they begin with: 13,14.1")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time")
    parser.add_argument("--checkout", type=Path, default=REPOSITORY, help="which opcost to try")
    parser.add_argument("--json", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    # A shell's background job ignores these, and so would all that is started here.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    chosen = sorted(FAULTS, key=lambda each: each.order)
    if arguments.only:
        wanted = arguments.only.split(",")
        chosen = [each for each in chosen if {each.number, each.number.split(".")[0]} & set(wanted)]
    rows = []
    for found in try_all(chosen, arguments.checkout.resolve(), arguments.jobs):
        rows.append(row(chosen[len(rows)], found))
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    counts = collections.Counter(each["verdict"] for each in rows)
    names = (GOOD, POOR, BAD, BY_HAND)
    print(f"\n{len(rows)} faults: " + ", ".join(f"{counts[name]} {name}" for name in names))
    sys.exit(counts[BAD] > 0)


def try_all(faults: list[Fault], checkout: Path, jobs: int) -> Iterator[Found]:
    """Try faults, some at a time, each in a folder of its own that is deleted when it is done."""
    # Not in /tmp, which is another folder for each study; and short: sockets lie in it, whose paths
    # have room for a hundred letters.
    base = Path(tempfile.mkdtemp(prefix="faults-", dir="/var/tmp"))
    base.chmod(0o755)
    try:
        finished = Study(base / "finished")
        finished.make(checkout)
        if any(each.measured for each in faults):
            outcome = finished.snakemake(timeout_s=600)
            if outcome.code != 0:
                sys.exit(f"the study itself failed:\n{outcome.text}")

        def attempt(fault: Fault) -> Found:
            found = try_one(fault, finished, base / fault.number.replace(".", "_"))
            print(
                f"{fault.number:>5}  {found.verdict:7}  {fault.what}\n{'':16}{found.text}",
                flush=True,
            )
            return found

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(attempt, faults)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def try_one(fault: Fault, finished: Study, folder: Path) -> Found:
    """Try one fault; one that cannot be tried is BAD, so that nobody overlooks it."""
    try:
        return fault.attempt(finished.copied(folder))
    except Exception:
        return Found(BAD, f"the fault itself failed: {traceback.format_exc(limit=-3)}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def row(fault: Fault, found: Found) -> dict[str, str]:
    """A row of the table."""
    return {
        "number": fault.number,
        "what": fault.what,
        "expected": fault.expected,
        "found": found.text,
        "verdict": found.verdict,
    }


if __name__ == "__main__":
    main()
