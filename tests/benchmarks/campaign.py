"""Rehearse a campaign on the simulated GPU: each piece in a copy of the repository of its own.

Nothing is left of a piece but what it wrote for the way home. Run by the Python that stands for the
host's; `campaign/wheels` must hold what it lacks, which this script needs, too:

    pip install --no-index --no-deps --target SITE campaign/wheels/*.whl
    PYTHONPATH=scripts:SITE python -m tests.benchmarks.campaign FOLDER [--minutes 10 --pieces 3]
        [--config KEY=VALUE ...] [--set host_us=20 ...]
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.checkout import REPOSITORY
from tests.simulated_cuda.gpu import SimulatedGpu


def working_tree(folder: Path) -> None:
    """What travels: the files that git knows or does not ignore, and `campaign/`."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in names.stdout.splitlines():
        if os.path.lexists(REPOSITORY / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name, follow_symlinks=False)
    if (REPOSITORY / "campaign/wheels").exists():
        shutil.copytree(REPOSITORY / "campaign/wheels", folder / "campaign/wheels")


def main() -> None:
    """Run the pieces, and say what each has brought home."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", default="10")
    parser.add_argument("--pieces", type=int, default=3)
    parser.add_argument("--home", type=Path, help="what an earlier piece has brought home")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    given, further = parser.parse_known_args()
    settings = dict(text.split("=", 1) for text in given.set)
    gpu = SimulatedGpu(given.folder / "gpu")
    environment = gpu.environment(**{"context_w": 90, **settings})
    environment["PYTHONPATH"] = "scripts"
    environment["OPCOST_LOCKS"] = str(given.folder.resolve())
    home = given.home
    for number in range(given.pieces):
        there = given.folder / "there"
        working_tree(there)
        if home is not None:
            shutil.copytree(home, there / "campaign/home")
        out = given.folder / f"out_{number}"
        command = [sys.executable, "-m", "campaign", "run", "--minutes", given.minutes]
        start_s = time.monotonic()
        ran = subprocess.run(
            [*command, "--out", str(out.resolve()), *further], cwd=there, env=environment
        )
        print(f"Piece {number}: status {ran.returncode}, {time.monotonic() - start_s:.0f} s")
        for path in sorted(out.iterdir()):
            print(f"  {path.name}: {path.stat().st_size / 2**20:.1f} MiB")
        home = out
        shutil.rmtree(there)


if __name__ == "__main__":
    main()
