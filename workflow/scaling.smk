# Python's own work that grows with the jobs of a study and is of no use here. Snakemake's:
# snakemake_internals.py.

import atexit
import gc

# Jobs live to the end. Python would look through all of them for garbage again and again while they
# are made, and would free them one by one before it exits.
gc.set_threshold(100_000, 20, 20)
atexit.register(gc.freeze)
