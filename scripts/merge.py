"""Merge databases of several machines or days: each row is kept apart by what it was measured on.

    python scripts/merge.py a/database.parquet b/database.parquet --output merged.parquet

docs/databases.md has the rules.
"""

import argparse
from pathlib import Path

from opcost.errors import reported
from opcost.merging import merge

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("databases", type=Path, nargs="+", metavar="DATABASE")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    with reported():
        print(merge(arguments.databases, arguments.output))
