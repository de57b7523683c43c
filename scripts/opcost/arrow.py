"""Keep pyarrow from importing pandas, which is slow."""

import sys
from types import SimpleNamespace

import pyarrow as pa


def skip_pandas_import() -> None:
    """Keep pyarrow from importing pandas with its first array, unless it is already imported.

    pyarrow imports it to recognise pandas objects, which takes a quarter of a second in each
    script. `to_pandas()` still imports pandas and works.
    """
    if "pandas" in sys.modules:
        return
    absent = SimpleNamespace(find_spec=_refuse_pandas)
    sys.meta_path.insert(0, absent)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(absent)


def _refuse_pandas(name: str, *_: object) -> None:
    if name == "pandas":
        raise ModuleNotFoundError(f"no module named {name!r}", name=name)
