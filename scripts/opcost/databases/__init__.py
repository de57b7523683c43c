"""Databases: collecting the measurements of a results folder, reading, and merging."""
