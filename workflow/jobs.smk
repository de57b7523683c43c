# The command and environment of each job.

import os
import shlex
import subprocess
import sys

from opcost.terminal import has_descriptor_files
from opcost.workers.server import offer_workers

# The shell of each job copies its standard error into the log through one of these.
if sys.platform == "linux" and not has_descriptor_files():
    raise WorkflowError(
        "jobs need /dev/fd, which is a link to /proc/self/fd, and /proc is not mounted: mount it "
        "(mount -t proc proc /proc), and run again"
    )

PACKAGE = Path(opcost.__file__).resolve().parent
if CONDA:  # the environment contains opcost's requirements, but not opcost
    os.environ.update(PYTHONPATH=str(PACKAGE.parent))


def workflow_commit():
    """The commit of the package's code, with + if files of it have changed; empty without git."""
    repository = PACKAGE.parents[1]
    if not (repository / ".git").exists():
        return ""
    git = ["git", "-C", str(repository)]
    code = ["--", "Snakefile", "workflow", "scripts", "envs"]
    try:
        commit, changed = (
            subprocess.run(
                [*git, *command], capture_output=True, text=True, timeout=10, check=True
            ).stdout.strip()
            for command in (
                ["rev-parse", "--short=12", "HEAD"],
                ["status", "--porcelain", "--untracked-files=no", *code],
            )
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{commit}+" if changed else commit


COMMIT = workflow_commit()

# A job on a cluster reads this, too, and has a server on its node. One for a conda environment would
# need the environment's Python.
WARM = STUDY.workers == "warm" and sys.platform == "linux" and not CONDA

# Parts that differ between runs are here and not in the text of rules, which would measure again.
JOB = shlex.join(
    [
        "python" if CONDA else sys.executable,
        *("-P", "-m", "opcost.jobs"),
        *(["--warm", offer_workers()] if WARM else []),
        *(["--commit", COMMIT] if COMMIT else []),
    ]
)


def job_command(wildcards, input):
    """The beginning of a job's command; a function of `input`, which Snakemake does not record."""
    return JOB


# Another version of the code makes tables again.
CODE = f"{opcost.__version__} {COMMIT}"
