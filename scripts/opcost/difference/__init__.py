"""Comparison of two databases: pairing of rows, and tests for changes."""
