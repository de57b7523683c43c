"""Processors and GPUs: timing work on them, detecting interference, and locking them."""
