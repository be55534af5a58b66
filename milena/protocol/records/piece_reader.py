"""Reading fields from bytes that come in pieces."""

from __future__ import annotations

from collections.abc import Iterator

from milena.protocol.records.batch import CorruptBatch


class PieceReader:
    """Reads on from ``data`` through ``pieces``. All methods raise IndexError if they end, and what they raise."""

    def __init__(self, pieces: Iterator[bytes | memoryview], data: bytes | memoryview = b"") -> None:
        self._pieces = pieces
        self._data = data
        self._position = 0
        self._before = 0

    @property
    def passed(self) -> int:
        """Bytes read so far."""
        return self._before + self._position

    def rest(self) -> bytes:
        """What is at hand and was not read."""
        return bytes(self._data[self._position :])

    def byte(self) -> int:
        while self._position == len(self._data):
            self._next()
        byte: int = self._data[self._position]
        self._position += 1
        return byte

    def varint(self, bits: int = 32) -> int:
        """Raises CorruptBatch if it is too long."""
        raw = shift = 0
        while shift < bits:
            byte = self.byte()
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                raw &= (1 << bits) - 1  # as read_raw
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
        raise CorruptBatch(f"a varint of more than {bits} bits")

    def take(self, length: int) -> Iterator[bytes | memoryview]:
        """The next ``length`` bytes, none if that is negative, in the pieces in which they come."""
        while length > 0:
            while self._position == len(self._data):
                self._next()
            part = self._data[self._position : self._position + length]
            self._position += len(part)
            length -= len(part)
            yield part

    def skip(self, length: int) -> Iterator[None]:
        """Pass over ``length`` bytes, none if that is negative. Yields for each further piece."""
        while length > (there := len(self._data) - self._position):
            length -= there
            self._next()
            yield
        self._position += max(length, 0)

    def _next(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            raise IndexError
        self._before += len(self._data)
        self._data = piece
        self._position = 0
