"""What a measurement has found so far, kept for the process that outlives it.

Who reads a power meter may die of it: the library of the driver crashes, or a call into it does not
return. Time is measured before, and so the row is kept before power is measured.
"""

import contextlib
import io
import os
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:  # the outer process needs it only when the inner one has died
    import pyarrow as pa

_DEATHS = ("crashed", "timeout")
_OPENING_METER = b"opening the meter"


class Kept:
    """How far a forked process came, in a file in memory that it shares with its parent.

    `meter_fault` is why the meter is not to be opened (again), if it is not.
    """

    def __init__(self) -> None:
        self.meter_fault: str | None = None
        self._file: IO[bytes] = os.fdopen(os.memfd_create("kept"), "w+b", buffering=0)

    def opening_meter(self) -> None:
        """The process opens the meter, and has measured nothing yet."""
        self._replace(_OPENING_METER)

    def timing(self) -> None:
        """The process measures time."""
        self._replace(b"")

    def keep(self, row: dict[str, Any], schema: "pa.Schema") -> None:
        """The process has measured time, and has this row if it should not measure power."""
        from opcost.rows import records

        with contextlib.suppress(OSError):  # without it, the row depends on the meter
            self._replace(b"")
            records.write_to(self._file, schema, [row])

    def blames_meter(self, status: str, reason: str) -> bool:
        """Whether the process died of opening the meter, which is then not opened any more."""
        if status not in _DEATHS or self._content() != _OPENING_METER:
            return False
        self.meter_fault = f"opening the power meter failed: {status}: {reason}"
        return True

    def row_without_power(self, status: str, reason: str) -> dict[str, Any] | None:
        """The row of a process that died after it had measured time, or None."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if status not in _DEATHS:
            return None
        with contextlib.suppress(pa.ArrowInvalid):  # none was kept, or not all of it
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
