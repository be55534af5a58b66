"""Adapts Kafka's frame decoder (``protocol.requests.frames``) to the interface of the network port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from milena.protocol.requests.frames import BadFrame, FrameDecoder, ReceiveBuffers
from milena.runtime.network import FrameError


class KafkaFramer(FrameDecoder):
    """Decodes Kafka's frames. Raises the port's FrameError for invalid ones."""

    __slots__ = ()

    def buffer_updated(self, count: int) -> Iterator[memoryview]:
        only = self.only_frame(count)
        return self._frames(count) if only is None else iter((only,))

    def _frames(self, count: int) -> Iterator[memoryview]:
        try:
            yield from super().buffer_updated(count)
        except BadFrame as error:
            raise FrameError(str(error)) from error


class FrameReader(Protocol):
    """The connection whose frames a ``TurnFramer`` splits."""

    def read_begins(self) -> None: ...

    def read_ends(self) -> None: ...

    def cut_off(self, reason: str) -> None: ...


class TurnFramer(KafkaFramer):
    """Calls its reader before and after the frames of one read. It skips both calls if the read is exactly one
    frame."""

    __slots__ = ("_reader",)

    def __init__(self, buffers: ReceiveBuffers, max_size: int, reader: FrameReader) -> None:
        super().__init__(buffers, max_size, reader.cut_off)
        self._reader = reader

    def _frames(self, count: int) -> Iterator[memoryview]:
        # An iteration that does not reach the end has closed the connection.
        self._reader.read_begins()
        yield from super()._frames(count)
        self._reader.read_ends()
