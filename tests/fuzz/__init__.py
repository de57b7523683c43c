"""Damaged files, and files with values that cannot be: each is refused by name, or changes nothing.

    PYTHONPATH=scripts python -m tests.fuzz --seconds 600 [--only rows] [--seed 0]

`tally` tries cases and counts; the kinds of cases lie in a module each. A case makes a file, has
opcost read it, and says whether a value that should have been refused passed.
"""
