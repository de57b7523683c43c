"""The result of a measurement so far, for the process that supervises it.

Reading a power meter may kill the process: the driver's library crashes, or a call into it hangs.
Time is measured first, and its row is saved before power is measured.
"""

import contextlib
import io
import os
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:  # the supervising process needs them only after a death
    import pyarrow as pa

    from opcost.measuring.trial import Trial

_DEATHS = ("crashed", "timeout")
_OPENING_METER = b"opening the meter"


class Listener:
    """Receives the progress of a trial, and ignores it."""

    def opening_meter(self) -> None:
        """The meter is about to be opened."""

    def timing(self) -> None:
        """Time is about to be measured."""

    def timed(self, trial: "Trial") -> None:
        """Power is about to be measured; `trial` holds the time."""


class Checkpoint(Listener):
    """The progress of a forked process, in a memory file that it shares with its parent.

    `meter_fault` is the reason why the meter must not be opened again, if any.
    """

    def __init__(self) -> None:
        self.meter_fault: str | None = None
        self._file: IO[bytes] = os.fdopen(os.memfd_create("checkpoint"), "w+b", buffering=0)

    def describe(self, columns: "Callable[[Trial], dict[str, Any]]", schema: "pa.Schema") -> None:
        """Set the function that makes a row of a trial."""
        self._columns, self._schema = columns, schema

    def opening_meter(self) -> None:
        """Record that nothing has been measured yet."""
        self._replace(_OPENING_METER)

    def timing(self) -> None:
        """Record that the meter did not kill the process."""
        self._replace(b"")

    def timed(self, trial: "Trial") -> None:
        """Save the row without power."""
        from opcost.rows import records

        row = self._columns(trial)
        with contextlib.suppress(OSError):  # then a row depends on the meter
            self._replace(b"")
            records.write_to(self._file, self._schema, [row])

    def blames_meter(self, status: str, reason: str) -> bool:
        """Whether opening the meter killed the process; if so, set `meter_fault`."""
        if status not in _DEATHS or self._content() != _OPENING_METER:
            return False
        self.meter_fault = f"opening the power meter failed: {status}: {reason}"
        return True

    def row_without_power(self, status: str, reason: str) -> dict[str, Any] | None:
        """The row of a process that died after measuring time, or None."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if status not in _DEATHS:
            return None
        with contextlib.suppress(pa.ArrowInvalid):  # no row, or an incomplete one
            [row] = pq.read_table(io.BytesIO(self._content())).to_pylist()
            died = f"the process died before it had measured power: {status}: {reason}"
            return {**row, "energy_reason": died}
        return None

    def _content(self) -> bytes:
        self._file.seek(0)
        return self._file.read()

    def _replace(self, content: bytes) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._file.write(content)
