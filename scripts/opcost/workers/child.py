"""How a forked process ends: with its work or with its parent, and never as a copy of it."""

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


def be_the_child(work: Callable[[], None]) -> NoReturn:
    """Do `work` in this forked process, and exit as a script would that does nothing else.

    It does not outlive a killed parent: it would disturb the next measurement.
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
        # Nobody may read it any more, or the work may have replaced it; nothing may leave here.
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)
