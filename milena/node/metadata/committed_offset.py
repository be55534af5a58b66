"""How far a metadata log is known to be committed: the file ``committed-offset`` beside it, Milena's own.

Neither the log nor Kafka's files say this. With it a start can tell a torn end, which nobody was told of, from the loss
of what others rely on. It is written in place and never synced, after what it speaks of was: a loss of power may leave
an older offset, or bytes without a meaning, which count as none.
"""

from __future__ import annotations

from typing import Final

from milena.protocol.records.crc import crc32c
from milena.protocol.types import Offset
from milena.runtime.disk import Disk, File

FILE_NAME: Final = "committed-offset"
_DIGITS: Final = 20


class CommittedOffsetFile:
    """Owner of the file in ``folder``. What cannot be written is left: the offset is a lower bound."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{FILE_NAME}"
        self._file: File | None = None

    def read(self) -> Offset | None:
        """None where nothing usable is there."""
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
