"""Faults and bad inputs, each tried on a copy of a small study that was measured once.

    PYTHONPATH=scripts python -m tests.faults [--only 13,14] [--jobs 2] [--checkout DIR]
        [--json FILE]

`fault` says what a fault is, `study` what it is tried on, `verdicts` how an outcome is judged,
`rows` how files of rows are changed. The faults themselves lie in a module for each kind.
"""
