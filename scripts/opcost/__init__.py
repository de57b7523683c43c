"""opcost: what each operator of a neural network costs, in seconds and in joules."""

__version__ = "0.1.0"
