"""Sphinx builds the site from the repository's Markdown, as it stands: `make docs`.

The source folder is the repository, so that links lead to the same pages here and on a Git host.
"""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY / "scripts"))

import opcost  # noqa: E402

project = "opcost"
version = release = opcost.__version__
copyright = "opcost's authors"

root_doc = "docs/index"
include_patterns = ["*.md", "config/*.md", "data/**.md", "docs/**.md", "docs/index.rst"]
exclude_patterns = ["docs/_build", "docs/README.md", ".*", "results", "logs", "tests"]

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 4
default_role = "code"  # what docstrings mean by one backtick
highlight_language = "none"  # indented blocks are commands and what they print

autodoc_member_order = "bysource"
autodoc_typehints = "description"
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!opcost\.).*"),  # names of other projects: the build asks no network
    # Named by what is described, and not described themselves.
    ("py:class", r"opcost\.(tuples\.operator_tuple\.Constant|databases\.merging\.Group)"),
    ("py:class", r"opcost\.difference\.(databases\.\w*Change|pairing\.Pairing)"),
    ("py:class", r"opcost\.(noise\.\w+|rows\.runs\.ModelRatio|costs\.completion\.Completion)"),
    # Folders, which a Git host lists: here they are text.
    ("myst", r"(\.\./)*(config/models|docs|models|scripts/opcost|workflow/schemas)"),
]

html_theme = "furo"
html_title = "opcost"
html_copy_source = False
