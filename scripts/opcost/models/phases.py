"""The phases of a training step, in order; inference is all forward."""

FORWARD, LOSS, BACKWARD, OPTIMIZER = PHASES = ("forward", "loss", "backward", "optimizer")

COMPARED_PHASES = (FORWARD, BACKWARD, OPTIMIZER)
"""The phases that are timed and compared: the loss counts with forward."""
