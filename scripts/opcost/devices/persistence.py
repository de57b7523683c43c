"""Keep the NVIDIA driver loaded while a study runs.

Without persistence mode, the driver initialises a GPU for each process that opens it first, which
takes up to seconds, and lets it go after the last. Open device files keep it, as in NVIDIA's
persistence daemon. No library is loaded, and no setting is changed.
"""

import contextlib
from contextlib import ExitStack
from pathlib import Path

_UNTIL_THE_END = ExitStack()


def keep_driver_loaded(devices: Path = Path("/dev")) -> int:
    """Open the device files of all GPUs until this process ends. Returns how many could be."""
    count = 0
    for path in devices.glob("nvidia[0-9]*"):
        with contextlib.suppress(OSError):
            _UNTIL_THE_END.enter_context(path.open("rb", buffering=0))
            count += 1
    return count
