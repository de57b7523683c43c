# The package opcost, of this repository even if another is installed, on a Snakemake that it knows;
# how its errors are shown.

import sys

from snakemake.exceptions import WorkflowError

REPOSITORY = Path(str(workflow.current_basedir)).resolve().parent
SCRIPTS = REPOSITORY / "scripts"
sys.path[:0] = [str(SCRIPTS), str(REPOSITORY / "workflow")]

if sys.flags.optimize > 1:
    raise WorkflowError(
        "PYTHONOPTIMIZE=2 is set, and charts need docstrings: set it to 1, or unset it"
    )
if {*"{}"} & {*str(REPOSITORY)}:
    raise WorkflowError(
        f"Snakemake takes braces in a path for a wildcard: move {REPOSITORY} to a folder without "
        "{ and } in its path"
    )

import snakemake_internals

snakemake_internals.check_version()
snakemake_internals.check(workflow, started=False)
snakemake_internals.refuse_prefix(workflow)
snakemake_internals.keep_what_was_measured()

import opcost
from opcost.errors import OpcostError

PACKAGE = Path(opcost.__file__).resolve().parent


def checked(check, *arguments):
    """What a function of opcost returns; its errors are shown without a traceback."""
    try:
        return check(*arguments)
    except OpcostError as error:
        raise WorkflowError(str(error)) from None
