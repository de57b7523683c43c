"""The environment in which a target was measured, and what to do if it has changed."""
