"""Power and energy: meters, their sensors, and the power phase of a trial."""
