"""The phases of a training step, in order; inference is all forward."""

FORWARD, LOSS, BACKWARD, OPTIMIZER = PHASES = ("forward", "loss", "backward", "optimizer")

COMPARED_PHASES = (FORWARD, BACKWARD, OPTIMIZER)
"""The phases that are timed and compared: the loss counts as forward."""


def compared_phase(phase: str) -> str:
    """The phase under which a call is timed and compared."""
    return FORWARD if phase == LOSS else phase
