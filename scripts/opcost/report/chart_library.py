"""The libraries that draw the charts: Vega, Vega-Lite and Vega-Embed as one script.

vl_convert takes more than a second to bundle them. The bundle is therefore cached for each user
(`$XDG_CACHE_HOME` or ~/.cache), by the version of vl_convert.
"""

import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import vl_convert

from opcost.files import replacing


def chart_library() -> str:
    """A script that sets `window.vegaEmbed`."""
    with suppress(OSError, RuntimeError):  # not cached yet, or no home folder
        return _kept().read_text(encoding="utf-8")
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    with suppress(OSError, RuntimeError), replacing(_kept()) as temporary:
        temporary.write_text(script, encoding="utf-8")
    return script


def _kept() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "opcost" / f"vega-{version('vl-convert-python')}.js"
