"""Reading fields from a sequence of byte pieces."""

from __future__ import annotations

from collections.abc import Iterator

from milena.protocol.records.batch import CorruptBatch


class PieceReader:
    """Reads fields from ``data`` and then from ``pieces``. All methods raise IndexError at the end, and the errors of
    ``pieces``."""

    def __init__(self, pieces: Iterator[bytes | memoryview], data: bytes | memoryview = b"") -> None:
        self._pieces = pieces
        self._data = data
        self._position = 0
        self._earlier = 0

    @property
    def bytes_read(self) -> int:
        """Bytes read so far."""
        return self._earlier + self._position

    def unread(self) -> bytes:
        """Return the unread bytes of the current piece."""
        return bytes(self._data[self._position :])

    def byte(self) -> int:
        while self._position == len(self._data):
            self._next()
        byte: int = self._data[self._position]
        self._position += 1
        return byte

    def varint(self, bits: int = 32) -> int:
        """Read a varint. Raises CorruptBatch if it has more than ``bits`` bits."""
        raw = shift = 0
        while shift < bits:
            byte = self.byte()
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                raw &= (1 << bits) - 1  # as in read_raw
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
        raise CorruptBatch(f"a varint of more than {bits} bits")

    def take(self, length: int) -> Iterator[bytes | memoryview]:
        """Yield the next ``length`` bytes in pieces; none if ``length`` is negative."""
        while length > 0:
            while self._position == len(self._data):
                self._next()
            part = self._data[self._position : self._position + length]
            self._position += len(part)
            length -= len(part)
            yield part

    def skip(self, length: int) -> Iterator[None]:
        """Skip ``length`` bytes; none if ``length`` is negative. Yields for each further piece."""
        while length > (available := len(self._data) - self._position):
            length -= available
            self._next()
            yield
        self._position += max(length, 0)

    def _next(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            raise IndexError
        self._earlier += len(self._data)
        self._data = piece
        self._position = 0
