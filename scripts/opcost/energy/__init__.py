"""Power and energy: meters and their sensors, and the phase of a trial that measures power."""
