"""Runs of Snakemake whose processes are forked from others that have imported what takes seconds:
most of a small run are imports.

Those others (forker.py) have not imported opcost: each run finds the package of its own folder. In
a run, `site/sitecustomize.py` has the server of warm workers and the scripts that make tables
forked, too. All else starts afresh.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from tests.warm_python.site.sitecustomize import ADDRESS, ask

CHARTS = "OPCOST_TESTS_CHARTS"
"""If this variable is set, a run writes its whole report (forker.py)."""

_FOLDER = Path(__file__).parent
_OF_SNAKEMAKE = ("snakemake.cli", "jsonschema.validators", "pyarrow.parquet")
_OF_ITS_JOBS = (
    *("torchvision", "pyarrow.parquet", "scipy.special"),
    *("snakemake.script", "altair", "pandas"),
)


def run(arguments, folder: Path, environment, timeout_s=300) -> subprocess.CompletedProcess:
    """What `python -m snakemake` with these arguments does and prints; killed after that time."""
    request = {
        "command": [sys.executable, "-m", "snakemake", *arguments],
        "folder": str(folder),
        "environment": with_warm_jobs(environment),
    }
    (out, its_out), (err, its_err) = os.pipe(), os.pipe()
    with open(os.devnull) as nothing:
        streams = {0: nothing.fileno(), 1: its_out, 2: its_err}
        snakemake = ask(_address(*_OF_SNAKEMAKE), request, streams)
    os.close(its_out)
    os.close(its_err)
    killer = threading.Timer(timeout_s, snakemake.shutdown, [socket.SHUT_WR])
    killer.start()
    with ThreadPoolExecutor(2) as pool, snakemake:
        texts = list(pool.map(_read, (out, err)))
        code = int(snakemake.recv(8) or -signal.SIGKILL)
    killer.cancel()
    return subprocess.CompletedProcess(request["command"], code, *texts)


def with_warm_jobs(environment, charts=False) -> dict[str, str]:
    """The environment of a run whose server and scripts are forked, as `site` has it. Without
    `charts`, its report is empty.
    """
    paths = [str(_FOLDER / "site"), environment.get("PYTHONPATH", "")]
    changes = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        ADDRESS: _address(*_OF_ITS_JOBS),
    }
    return {**environment, **changes, **({CHARTS: "1"} if charts else {})}


def _read(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as stream:
        return stream.read()


@cache
def _address(*modules: str) -> str:
    """Of a socket where processes are forked, for this one alone, that have imported these modules.

    On a core of its own if this is a worker of pytest-xdist: otherwise, the runs of all workers
    would measure on one core, and do all else on another.
    """
    folder = tempfile.mkdtemp(prefix="opcost-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = str(Path(folder) / "socket")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    # It ends with this process, which alone has the other end.
    life, _ = os.pipe()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    numbers = [listener.fileno(), life]
    command = [sys.executable, "-P", _FOLDER / "forker.py", *map(str, numbers), *modules]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=numbers, env=environment)
    listener.close()
    os.close(life)
    return path
