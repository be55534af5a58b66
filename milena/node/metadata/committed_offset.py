"""The file ``committed-offset`` in the folder of the metadata log (not in Kafka): an offset below which the log is
known to be committed.

At start-up it distinguishes a torn end that was never acknowledged from the loss of committed records. The offset is
written in place after the log was synced, and not synced itself: a power loss may leave an older offset, or invalid
bytes, which are ignored.
"""

from __future__ import annotations

from typing import Final

from milena.protocol.records.crc import crc32c
from milena.protocol.types import Offset
from milena.runtime.disk import Disk, File

FILE_NAME: Final = "committed-offset"
_DIGITS: Final = 20


class CommittedOffsetFile:
    """Reads and writes the file in ``folder``. Write errors are ignored, since the offset is only a lower bound."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{FILE_NAME}"
        self._file: File | None = None

    def read(self) -> Offset | None:
        """Return the offset; None if the file is missing or invalid."""
        try:
            data = self._disk.read(self._path)
        except OSError:
            return None
        digits = data[:_DIGITS]
        valid = digits.isdigit() and data == _encoded(int(digits))
        return Offset(int(digits)) if valid else None

    def write(self, offset: Offset) -> None:
        """Write ``offset`` in place."""
        try:
            if self._file is None:
                self._file = self._disk.open(self._path, create=True)
            self._file.pwrite(_encoded(offset), 0)
        except OSError:
            self.close()

    def forget(self) -> None:
        """Delete the file. Raises OSError."""
        self.close()
        self._disk.remove(self._path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _encoded(offset: int) -> bytes:
    digits = b"%020d" % offset
    return digits + b" %08x\n" % crc32c(digits)
