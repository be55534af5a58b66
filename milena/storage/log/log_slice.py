"""The bytes that a fetch returns, like Kafka's ``FetchDataInfo``."""

from __future__ import annotations

from typing import final

from milena.protocol.types import Offset
from milena.runtime.disk import File
from milena.runtime.network import FileRange


@final
class CopiedSlice:
    """The bytes of a ``LogSlice`` in memory."""

    __slots__ = ("length", "records")

    def __init__(self, records: memoryview, length: int) -> None:
        self.records = records
        self.length = length

    def part(self) -> memoryview:
        return self.records


@final
class LogSlice:
    """A range of bytes of one segment. It begins at a batch; its last batch may be incomplete. If it is empty, ``file``
    is None and ``length`` is 0."""

    __slots__ = ("file", "length", "position", "segment_base")

    def __init__(self, file: File | None, position: int, length: int, segment_base: Offset) -> None:
        self.file = file
        self.position = position
        self.length = length
        self.segment_base = segment_base

    def part(self) -> FileRange:
        """Return the range to send. The slice must not be empty."""
        assert self.file is not None
        return FileRange(self.file, self.position, self.length)

    def taken_out(self) -> CopiedSlice:
        """Return a copy in memory that does not use the file. Raises OSError."""
        return CopiedSlice(self.read(), self.length)

    def read(self) -> memoryview:
        """Return the bytes. Raises OSError."""
        return memoryview(self.file.pread(self.length, self.position)) if self.file is not None else memoryview(b"")
