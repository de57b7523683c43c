"""Run work in a forked process, which ends with its work or with its parent."""

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


def run_child(work: Callable[[], None]) -> NoReturn:
    """Do `work` in this forked process and exit with the status that a script would have.

    The process is killed with its parent, so that it does not interfere with later measurements.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    code = 1
    try:
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        # Streams may be closed or replaced by the work; no exception may escape here.
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)
