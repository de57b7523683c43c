"""Planning of measurements: remaining tuples, their order and time, and progress."""
