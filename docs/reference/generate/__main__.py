"""Generate the reference pages from the code: `python docs/reference/generate`.

`make docs` runs it. A test fails if a committed page differs from the generated one.
"""

import sys
from pathlib import Path

REFERENCE = Path(__file__).parent.parent
REPOSITORY = REFERENCE.parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "scripts")]

from docs.reference.generate.columns_page import columns_page  # noqa: E402
from docs.reference.generate.command_line_page import command_line_page  # noqa: E402
from docs.reference.generate.configuration_page import configuration_page  # noqa: E402
from docs.reference.generate.flags_page import flags_page  # noqa: E402

PAGES = {
    "columns.md": columns_page,
    "flags.md": flags_page,
    "configuration.md": configuration_page,
    "command_line.md": command_line_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
