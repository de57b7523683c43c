"""opcost: time and energy of each operator of a neural network."""

__version__ = "0.1.0"
