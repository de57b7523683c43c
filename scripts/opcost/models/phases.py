"""The phases of a training step, in order; inference is all forward."""

FORWARD, LOSS, BACKWARD, OPTIMIZER = PHASES = ("forward", "loss", "backward", "optimizer")
