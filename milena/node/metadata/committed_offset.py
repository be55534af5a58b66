"""The file ``committed-offset`` beside the metadata log (Milena's own): an offset up to which the log is known to be
committed.

Neither the log nor Kafka's files contain this. At start-up it distinguishes a torn end that was never acknowledged from
the loss of committed records. The offset is written in place and never synced, after the log was synced: a power loss
may leave an older offset, or invalid bytes, which count as none.
"""

from __future__ import annotations

from typing import Final

from milena.protocol.records.crc import crc32c
from milena.protocol.types import Offset
from milena.runtime.disk import Disk, File

FILE_NAME: Final = "committed-offset"
_DIGITS: Final = 20


class CommittedOffsetFile:
    """Owner of the file in ``folder``. Write errors are ignored: the offset is a lower bound."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{FILE_NAME}"
        self._file: File | None = None

    def read(self) -> Offset | None:
        """None if there is no usable offset."""
        try:
            data = self._disk.read(self._path)
        except OSError:
            return None
        digits = data[:_DIGITS]
        sound = digits.isdigit() and data == _encoded(int(digits))
        return Offset(int(digits)) if sound else None

    def write(self, offset: Offset) -> None:
        try:
            if self._file is None:
                self._file = self._disk.open(self._path, create=True)
            self._file.pwrite(_encoded(offset), 0)
        except OSError:
            self.close()

    def forget(self) -> None:
        """Raises OSError."""
        self.close()
        self._disk.remove(self._path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _encoded(offset: int) -> bytes:
    digits = b"%020d" % offset
    return digits + b" %08x\n" % crc32c(digits)
