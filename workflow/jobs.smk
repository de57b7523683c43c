# What each job finds when it starts: its environment variables, and /dev/fd.

import os
import subprocess
import sys

from snakemake.settings.types import DeploymentMethod

from opcost.terminal import has_descriptor_files

# The shell of each job duplicates its standard error into the log through one of these.
if sys.platform == "linux" and not has_descriptor_files():
    raise WorkflowError(
        "jobs need /dev/fd, which is a link to /proc/self/fd, and /proc is not mounted: mount it "
        "(mount -t proc proc /proc), and run again"
    )

# Shell commands find these in their environment: as part of a command's text or parameters, a
# moved repository or another Python would count as changed and measure everything again.
# Jobs run on the Python that runs Snakemake, or on that of the rule's conda environment.
CONDA = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
os.environ.update(
    PYTHONPATH=os.pathsep.join(filter(None, [str(SCRIPTS), os.environ.get("PYTHONPATH")])),
    OPCOST_PYTHON="python" if CONDA else sys.executable,
    OPCOST_SCRIPTS=str(SCRIPTS),
    OPCOST_MODELS=str(STUDY.model_directory),
    OPCOST_EXTRACTION=STUDY.extraction.to_json(),
    OPCOST_RUN=str(os.getpid()),
    OPCOST_WORKERS=STUDY.workers if sys.platform == "linux" else "plain",
)


def workflow_commit():
    """The commit of the workflow's code, with + if files of it have changed; empty without git."""
    git = ["git", "-C", str(REPOSITORY)]
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


# Not as a parameter: a commit is no reason to measure again.
if workflow.is_main_process:
    os.environ.update(OPCOST_COMMIT=workflow_commit() if (REPOSITORY / ".git").exists() else "")
