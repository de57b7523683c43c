"""Measurements of time and power: subjects, cache states, trials, and the jobs that run them."""
