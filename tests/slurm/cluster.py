"""A real Slurm cluster on this machine, of nodes with fake GPUs (start.sh)."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).parent
PATHS = f"{os.environ['PATH']}:/usr/sbin"


def install() -> str | None:
    """Install Slurm where it is missing. The reason why that cannot be done, or None."""
    if all(shutil.which(program, path=PATHS) for program in ("slurmctld", "slurmd", "munged")):
        return None
    done = subprocess.run(["bash", HERE / "install.sh"], capture_output=True, text=True)
    if done.returncode == 0:
        return None
    lines = (done.stdout + done.stderr).strip().splitlines() or ["no message"]
    return f"tests/slurm/install.sh failed: {lines[-1]}"


class Cluster:
    """Munge, slurmctld and a slurmd for each of the kinds of GPU; all state is in `folder`."""

    def __init__(self, kinds: list[str]) -> None:
        # Munge wants a folder that everybody may enter, which pytest's are not.
        self.folder = folder = Path(tempfile.mkdtemp(prefix="opcost-slurm-"))
        folder.chmod(0o755)
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "etc" / "slurm.conf"),
            "PATH": f"{folder}/bin:{PATHS}",
        }
        port = str(_free_ports(len(kinds) + 1))
        self.run("bash", str(HERE / "start.sh"), str(folder), port, *kinds)

    def run(self, *command: str) -> str:
        """What a command of Slurm's prints."""
        # Daemons that the command starts would keep a pipe open: a file ends with the command.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                command, env=self.environment, stdout=output, stderr=subprocess.STDOUT, timeout=120
            )
            output.seek(0)
            text = output.read()
        assert done.returncode == 0, text
        return text

    def jobs(self) -> dict[int, dict[str, str]]:
        """State, node, GPUs, start and end of every job there was."""
        fields = {
            "state": "state",
            "nodelist": "node",
            "tres-per-job": "gpus",
            "starttime": "start",
            "endtime": "end",
        }
        wanted = ",".join(f"{field}:100|" for field in ("jobid", *fields))
        lines = self.run("squeue", "--states=all", "--noheader", f"--Format={wanted}").splitlines()
        rows = [[cell.strip() for cell in line.split("|")] for line in lines]
        return {int(row[0]): dict(zip(fields.values(), row[1:], strict=False)) for row in rows}

    def kill_controller(self) -> None:
        """With SIGKILL."""
        process = self._process(self.folder / "run" / "slurmctld.pid")
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: not _lives(process), 10)

    def start_controller(self) -> None:
        """From the state that it saved."""
        self.run("slurmctld")

    def stop(self) -> None:
        """Cancel what runs and end all daemons, the nodes first."""
        self.run("scancel", "--user", str(os.getuid()))
        wait_until(lambda: not self.run("squeue", "--noheader").strip(), 30)
        for name in ("slurmd.*.pid", "slurmctld.pid", "munged.pid"):
            for file in (self.folder / "run").glob(name):
                process = self._process(file)
                os.kill(process, signal.SIGTERM)
                wait_until(lambda process=process: not _lives(process), 20)
        shutil.rmtree(self.folder)

    def _process(self, file: Path) -> int:
        return int(file.read_text())


def wait_until(condition, timeout_s: float) -> None:
    """Wait for a condition; fails after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"did not happen within {timeout_s} s"
        time.sleep(0.1)


def seconds_between(start: str, end: str) -> float:
    """Between two times as Slurm prints them."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _lives(process: int) -> bool:
    try:  # a zombie does not
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on."""
    for first in range(16817, 60000, count):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for offset, each in enumerate(sockets):
                each.bind(("127.0.0.1", first + offset))
            return first
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
    raise AssertionError("no free ports")
