"""Data embedded in the page: compressed, and unpacked by the browser on demand."""

import base64
import gzip
import json
from typing import Any


def packed(data: Any) -> str:
    """JSON data, or a text as it is, as base64 of gzip. The same data give the same text."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def unpacked(text: str) -> Any:
    """The JSON data that `packed` was given."""
    return json.loads(gzip.decompress(base64.b64decode(text)))
