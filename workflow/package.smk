# The package opcost, which jobs call: whether it is installed, and Snakemake is compatible; and the
# display of its errors.

import sys

from snakemake.exceptions import WorkflowError

try:
    import opcost
except ImportError:
    raise WorkflowError(
        f"the Python that runs Snakemake, {sys.executable}, lacks the package opcost: install it "
        "there (pip install opcost; in a clone: pip install --editable .)"
    ) from None

from opcost import snakemake_internals
from opcost.errors import OpcostError

if sys.flags.optimize > 1:
    raise WorkflowError(
        "PYTHONOPTIMIZE=2 is set, and charts need docstrings: set it to 1, or unset it"
    )
if {*"{}"} & {*str(workflow.current_basedir)}:
    raise WorkflowError(
        "Snakemake takes braces in a path for a wildcard: move "
        f"{Path(str(workflow.current_basedir)).parent} to a folder without {{ and }} in its path"
    )

snakemake_internals.check_version()
snakemake_internals.check(workflow, started=False)
snakemake_internals.refuse_prefix(workflow)


def checked(check, *arguments):
    """The result of a function of opcost; its errors are shown without a traceback."""
    try:
        return check(*arguments)
    except OpcostError as error:
        raise WorkflowError(str(error)) from None
