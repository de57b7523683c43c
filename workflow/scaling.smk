# Work of Python that grows with the jobs of a study and is useless here. For Snakemake's, see
# snakemake_internals.py.

import atexit
import gc

# Job objects are never freed: keep the collector from scanning them, and from freeing them at exit.
gc.set_threshold(100_000, 20, 20)
atexit.register(gc.freeze)
