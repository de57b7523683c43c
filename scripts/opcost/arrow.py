"""Keep pyarrow from importing pandas, which is slow."""

import sys
from types import SimpleNamespace

import pyarrow as pa


def leave_pandas_out() -> None:
    """Let pyarrow find that there is no pandas, unless this process has imported it already.

    pyarrow imports pandas with the first array that it makes, to know pandas' objects should it
    meet any: a quarter of a second in each script. `to_pandas()` looks again, and works.
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
