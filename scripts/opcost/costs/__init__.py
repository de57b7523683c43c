"""Estimates of a model's cost from its operators, compared with its measured cost."""
